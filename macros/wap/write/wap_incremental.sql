{#- The strategy. One that is not built in must be a macro of the user, or dbt fails here. -#}
{% macro wap_incremental_strategy() %}
    {%- set strategy = config.get("incremental_strategy") or "append" -%}
    {%- set strategy = "append" if strategy == "default" else strategy -%}
    {%- if strategy not in adapter.valid_incremental_strategies() -%}
        {%- do adapter.get_incremental_strategy_macro(context, strategy) -%}
    {%- endif -%}
    {{ return(strategy) }}
{% endmacro %}

{#- Add the rows of `sql` to a table that exists. -#}
{% macro wap_extend_table(relation, sql, strategy, on_schema_change, batch=none) %}
    {%- if config.get("contract").enforced -%}
        {%- do get_assert_columns_equivalent(sql) -%}
    {%- endif -%}
    {%- set increment = wap_temporary_view(relation, sql) -%}
    {%- set columns = [] -%}
    {%- call adapter.wap.in_turn(relation) -%}
        {%- do columns.extend(wap_place_increment(relation, increment, on_schema_change)) -%}
    {%- endcall -%}
    {%- call adapter.wap.in_turn(relation, batch is none or batch.alone) -%}
        {%- do wap_write_increment(strategy, relation, increment, columns, batch) -%}
    {%- endcall -%}
{% endmacro %}

{#- The increment as a temporary view, which only the node's session has. -#}
{% macro wap_temporary_view(relation, sql) %}
    {%- set view = make_temp_relation(relation) -%}
    {%- call statement("create_temporary_view") -%}
        create or replace temporary view {{ view }} as
        {{ sql }}
    {%- endcall -%}
    {{ return(view) }}
{% endmacro %}

{#-
    Place the table of an increment: on the branch, or on a clone if the schema changes. With
    append_new_columns, it also gets wider types of columns, as far as Iceberg widens them.

    returns: names of the columns to write: those of the increment that the table has
-#}
{% macro wap_place_increment(relation, increment, on_schema_change) %}
    {%- set incoming = adapter.get_columns_in_relation(increment) -%}
    {%- set changes = check_for_schema_changes(increment, relation)
        if on_schema_change != "ignore" else {"schema_changed": false} -%}
    {%- set additive = on_schema_change == "append_new_columns" -%}
    {%- set wider = [] -%}
    {%- for change in changes["new_target_types"] or [] if additive -%}
        {%- if adapter.wap.widens(relation, change["column_name"], change["new_type"]) -%}
            {%- do wider.append(change) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set evolve = changes["source_not_in_target"] or wider
        or (not additive and changes["schema_changed"]) -%}
    {%- if changes["schema_changed"] and (evolve or on_schema_change == "fail") -%}
        {%- if on_schema_change != "fail" -%}
            {%- do adapter.wap.place_clone(relation, ["on_schema_change: " ~ on_schema_change]) -%}
        {%- endif -%}
        {%- do process_schema_changes(on_schema_change, increment, relation) -%}
        {%- for change in wider -%}
            {%- do alter_column_type(relation, change["column_name"], change["new_type"]) -%}
        {%- endfor -%}
    {%- else -%}
        {%- do wap_place_kept(relation) -%}
    {%- endif -%}
    {%- do wap_check_layout(relation, incoming) -%}
    {%- set names = adapter.get_columns_in_relation(relation) | map(attribute="name") | list -%}
    {%- if on_schema_change in ("append_new_columns", "sync_all_columns") -%}
        {%- set given = incoming | map(attribute="name") | map("lower") | list -%}
        {%- set names = adapter.wap.intersect(names, given) -%}
    {%- endif -%}
    {{ return(names) }}
{% endmacro %}

{#- Place a table whose columns do not change: on the branch, or on a clone for new comments. -#}
{% macro wap_place_kept(relation) %}
    {%- set kept = [] -%}
    {%- for column in adapter.get_columns_in_relation(relation) -%}
        {%- do kept.append({"name": column.name, "type": column.dtype}) -%}
    {%- endfor -%}
    {%- set wanted = wap_wanted_columns(kept) -%}
    {%- for column in wanted if column["nullable"] is false -%}
        {#- Iceberg cannot do it; the contract checks the rows of each run. -#}
        {%- do column.pop("nullable") -%}
    {%- endfor -%}
    {%- set place = adapter.wap.place_table(relation, wanted, _wap_kept_layout(relation)) -%}
    {%- if place == "side" -%}{%- do _wap_alter_kept(relation, wanted) -%}{%- endif -%}
{% endmacro %}

{#- Make exactly the changes for which a table was placed on a clone. -#}
{% macro _wap_alter_kept(relation, wanted) %}
    {%- set state = adapter.wap.live(relation) -%}
    {%- set present = {} -%}
    {%- for column in state.columns if state is not none -%}
        {%- do present.update({column.name | lower: column}) -%}
    {%- endfor -%}
    {%- for column in wanted if column["name"] | lower in present -%}
        {%- set old = present[column["name"] | lower] -%}
        {%- set alter = "alter table " ~ relation.render() ~ " alter column "
            ~ adapter.quote(column["name"]) -%}
        {%- if column["nullable"] and old.required -%}
            {%- do run_query(alter ~ " drop not null") -%}
        {%- endif -%}
        {%- if "doc" in column and column["doc"] != (old.doc or "") -%}
            {%- do run_query(alter ~ " comment " ~ wap_string(column["doc"])) -%}
        {%- endif -%}
    {%- endfor -%}
    {%- do persist_docs(relation, model, for_columns=false) -%}
{% endmacro %}

{#- Tell what of the config and the columns has no effect on a table that is only extended. -#}
{% macro wap_check_layout(relation, columns) %}
    {%- set types = {} -%}
    {%- for column in columns -%}{%- do types.update({column.name: column.dtype}) -%}{%- endfor -%}
    {%- set layout = wap_layout() -%}
    {%- do layout.pop("comment", none) -%}
    {%- do layout.update({"properties": config.get("tblproperties")}) -%}
    {%- do adapter.wap.check_layout(
        relation, layout, types, model.unique_id, config.get("incremental_strategy")) -%}
{% endmacro %}

{#-
    The layout of an increment does not manage partitions and properties: they do not change, except
    for the write mode.
-#}
{% macro _wap_kept_layout(relation) %}
    {%- set layout = {"given": _wap_properties()} -%}
    {%- set mode = config.get("wap_write_mode") -%}
    {%- if mode -%}
        {%- set changed = adapter.wap.write_mode(relation, mode, model.unique_id) -%}
        {%- do layout.update({"properties": changed, "on_clone": changed}) -%}
    {%- endif -%}
    {%- if config.persist_relation_docs() -%}
        {%- do layout.update({"comment": model.description or ""}) -%}
    {%- endif -%}
    {{ return(layout) }}
{% endmacro %}

{% macro wap_write_increment(strategy, relation, increment, columns, batch=none) %}
    {%- set quoted = adapter.wap.quoted(columns) -%}
    {%- if strategy == "merge" -%}
        {%- call statement("main") -%}
            {{ wap_merge_sql(relation, increment, columns) }}
        {%- endcall -%}
    {%- elif strategy == "delete+insert" and adapter.wap.list(config.get("unique_key")) -%}
        {%- call statement("main") -%}
            {{ _wap_replace_matching(relation, increment, quoted) }}
        {%- endcall -%}
    {%- elif strategy == "insert_overwrite" -%}
        {%- do _wap_insert_overwrite(relation, increment, quoted) -%}
    {%- elif strategy not in adapter.valid_incremental_strategies() -%}
        {%- call statement("main") -%}
            {{ _wap_custom_strategy_sql(strategy, relation, increment) }}
        {%- endcall -%}
    {%- else -%}
        {%- if batch and batch.deletes -%}{%- do _wap_delete_batch(relation) -%}{%- endif -%}
        {%- call statement("main") -%}
            insert into {{ relation }} ({{ quoted | join(", ") }})
            select {{ quoted | join(", ") }} from {{ increment }}
        {%- endcall -%}
    {%- endif -%}
{% endmacro %}

{#- Replaces only the partitions that have rows in the increment; without partitions, the table. -#}
{% macro _wap_insert_overwrite(relation, increment, quoted) %}
    {%- set mode = "dynamic" if config.get("partition_by") else "static" -%}
    {%- do _wap_overwrite_partitions(mode) -%}
    {%- call statement("main") -%}
        insert overwrite {{ relation }} ({{ quoted | join(", ") }})
        select {{ quoted | join(", ") }} from {{ increment }}
    {%- endcall -%}
    {%- do _wap_overwrite_partitions("static") -%}
{% endmacro %}

{#-
    Set the overwrite mode directly before an overwrite: `static` replaces all partitions. A hook, a
    Python model or the server may have set another mode in this session.
-#}
{% macro _wap_overwrite_partitions(mode) %}
    {%- do run_query("set spark.sql.sources.partitionOverwriteMode = " ~ mode) -%}
{% endmacro %}

{% macro _wap_custom_strategy_sql(strategy, relation, increment) %}
    {%- set strategy_sql = adapter.get_incremental_strategy_macro(context, strategy) -%}
    {{ return(strategy_sql({
        "target_relation": relation,
        "temp_relation": increment,
        "unique_key": config.get("unique_key"),
        "dest_columns": adapter.get_columns_in_relation(relation),
        "incremental_predicates": wap_predicates(),
    })) }}
{% endmacro %}

{% macro wap_predicates() %}
    {{ return(adapter.wap.list(
        config.get("incremental_predicates") or config.get("predicates")) or []) }}
{% endmacro %}

{#-
    Replace the rows with the keys of the increment, in one statement: after a delete, the query of
    the increment may return other rows, as it may read the table. Each row of the increment comes
    twice, to delete and to insert. The names of its columns stay out of predicates in a struct.
-#}
{% macro _wap_replace_matching(relation, increment, quoted) %}
    {%- set conditions = ["DBT_INTERNAL_SOURCE.wap_deletes"] -%}
    {%- for key in adapter.wap.list(config.get("unique_key")) -%}
        {%- do conditions.append(
            "DBT_INTERNAL_SOURCE.wap_row." ~ key ~ " = DBT_INTERNAL_DEST." ~ key) -%}
    {%- endfor -%}
    merge into {{ relation }} as DBT_INTERNAL_DEST
    using (
        select struct(*) as wap_row, explode(array(true, false)) as wap_deletes
        from {{ increment }}
    ) as DBT_INTERNAL_SOURCE
    on {{ (conditions + wap_predicates()) | join(" and ") }}
    when matched then delete
    when not matched and not DBT_INTERNAL_SOURCE.wap_deletes
        then insert ({{ quoted | join(", ") }})
        values (
            {%- for column in quoted -%}
            DBT_INTERNAL_SOURCE.wap_row.{{ column }}{{ ", " if not loop.last }}
            {%- endfor -%}
        )
{% endmacro %}

{#- Delete the rows in the batch's time range; readers never see the branch between. -#}
{% macro _wap_delete_batch(relation) %}
    {%- set bounds = _wap_batch_bounds() -%}
    {%- if bounds -%}
        {%- do run_query("delete from " ~ relation ~ " where " ~ bounds) -%}
    {%- endif -%}
{% endmacro %}

{% macro _wap_batch_bounds() %}
    {%- set time = adapter.quote(config.get("event_time")) -%}
    {%- set batch = model.batch -%}
    {%- set bounds = [] -%}
    {%- if batch and batch.event_time_start -%}
        {%- do bounds.append(time ~ " >= timestamp '" ~ batch.event_time_start ~ "'") -%}
    {%- endif -%}
    {%- if batch and batch.event_time_end -%}
        {%- do bounds.append(time ~ " < timestamp '" ~ batch.event_time_end ~ "'") -%}
    {%- endif -%}
    {{ return(bounds | join(" and ")) }}
{% endmacro %}

{#-
    The rows of a batch beside which others may write. A row in the time range of another batch is
    an error: whether that batch deletes it would depend on which of them is faster.
-#}
{% macro wap_batch_rows(sql) %}
    {%- set time = adapter.quote(config.get("event_time")) -%}
    {%- set problem = "A batch of " ~ model.name ~ " returned a row outside its time range, from "
        ~ model.batch.event_time_start ~ " to " ~ model.batch.event_time_end ~ ". Batches that may "
        ~ "run at the same time must not do so. Nothing of the batch was written. Filter the rows "
        ~ "by " ~ time ~ ", or set `concurrent_batches: false` for the model, then run `dbt retry`"
    -%}
    select * from (
        {{ sql }}
    ) as batch_rows
    where case
        when {{ time }} is null or ({{ _wap_batch_bounds() }}) then true
        else cast(raise_error({{ wap_string(problem) }}) as boolean)
    end
{% endmacro %}
