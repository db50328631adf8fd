{#- Add the changes of the source since the last run to a snapshot. -#}
{% macro wap_extend_snapshot(relation, strategy) %}
    {%- set names = config.get("snapshot_table_column_names")
        or get_snapshot_table_column_names() -%}
    {%- do adapter.assert_valid_snapshot_target_given_strategy(relation, names, strategy) -%}
    {%- set changes = wap_temporary_view(
        relation, snapshot_staging_table(strategy, model["compiled_code"], relation)) -%}
    {%- set columns = [] -%}
    {%- for column in adapter.get_columns_in_relation(changes) -%}
        {%- if not _wap_is_helper(column.name) -%}{%- do columns.append(column) -%}{%- endif -%}
    {%- endfor -%}
    {%- set missing = adapter.get_missing_columns(changes, relation) -%}
    {%- set added = [] -%}
    {%- for column in missing -%}
        {%- if not _wap_is_helper(column.name) -%}{%- do added.append(column) -%}{%- endif -%}
    {%- endfor -%}
    {%- if added -%}
        {%- do adapter.wap.place_clone(
            relation, ["added " ~ added | map(attribute="name") | join(", ")]) -%}
        {%- do create_columns(relation, added) -%}
        {#- The view reads the live table; create it again over the clone. -#}
        {%- set changes = wap_temporary_view(
            relation, snapshot_staging_table(strategy, model["compiled_code"], relation)) -%}
    {%- else -%}
        {%- do wap_place_kept(relation) -%}
    {%- endif -%}
    {%- do wap_check_layout(relation, columns) -%}
    {%- call statement("main") -%}
        {{ snapshot_merge_sql(
            relation, changes, adapter.wap.quoted(columns | map(attribute="name") | list)) }}
    {%- endcall -%}
{% endmacro %}

{#- Helper columns are for the joins of dbt's staging query; the table does not have them. -#}
{% macro _wap_is_helper(name) %}
    {%- set lowered = name | lower -%}
    {{ return(lowered == "dbt_change_type" or lowered.startswith("dbt_unique_key")) }}
{% endmacro %}

{#-
    A row that changes at the start of its version replaces the version, which has its id. A row
    that is deleted then leaves no version: a version of its id could not come back.
-#}
{% macro sparkwap__snapshot_merge_sql(target, source, insert_cols) %}
    {%- set names = config.get("snapshot_table_column_names")
        or get_snapshot_table_column_names() -%}
    {%- set deletes = adapter.get_hard_deletes_behavior(config) -%}
    {%- set current = _wap_is_current(names) -%}
    {%- set until = "DBT_INTERNAL_SOURCE." ~ names.dbt_valid_to -%}
    merge into {{ target }} as DBT_INTERNAL_DEST
    {%- if config.get("strategy") == "timestamp" and deletes != "ignore" %}
    using (
        {{ _wap_with_returned(target, source, insert_cols, names, deletes) }}
    ) as DBT_INTERNAL_SOURCE
        {%- if deletes == "new_record" -%}
            {%- set until = "if(" ~ until ~ " < DBT_INTERNAL_DEST." ~ names.dbt_valid_from
                ~ ", coalesce(DBT_INTERNAL_SOURCE.wap_at, " ~ until ~ "), " ~ until ~ ")" -%}
        {%- endif -%}
    {%- else %}
    using {{ source }} as DBT_INTERNAL_SOURCE
    {%- endif %}
    on DBT_INTERNAL_SOURCE.{{ names.dbt_scd_id }} = DBT_INTERNAL_DEST.{{ names.dbt_scd_id }}
        and not (
            DBT_INTERNAL_SOURCE.dbt_change_type = 'update'
            and DBT_INTERNAL_SOURCE.{{ names.dbt_valid_to }}
                = DBT_INTERNAL_DEST.{{ names.dbt_valid_from }}
        )
    when matched and {{ current }}
        and DBT_INTERNAL_SOURCE.dbt_change_type = 'delete'
        and DBT_INTERNAL_SOURCE.{{ names.dbt_valid_to }}
            = DBT_INTERNAL_DEST.{{ names.dbt_valid_from }}
        then delete
    when matched and {{ current }}
        and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete')
        then update set {{ names.dbt_valid_to }} = {{ until }}
    when matched and {{ current }}
        then update set
            {%- for column in insert_cols %}
            {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ "," if not loop.last }}
            {%- endfor %}
    when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'
        then insert ({{ insert_cols | join(", ") }})
        values (
            {%- for column in insert_cols -%}
            DBT_INTERNAL_SOURCE.{{ column }}{{ ", " if not loop.last }}
            {%- endfor -%}
        )
{% endmacro %}

{#- Whether a version of the table is the last one of its key. -#}
{% macro _wap_is_current(names) %}
    {%- set ended = "DBT_INTERNAL_DEST." ~ names.dbt_valid_to -%}
    {%- set open_end = config.get("dbt_valid_to_current") -%}
    ({{ ended }} is null{% if open_end %} or {{ ended }} = {{ open_end }}{% endif %})
{%- endmacro %}

{#-
    The changes, where a deleted key that returns with its former `updated_at` becomes a version
    again: with the id and start of the former version it would be taken for that one, which is
    closed. It begins where that ended; with `new_record`, the record of the deletion ends now.
-#}
{% macro _wap_with_returned(target, source, insert_cols, names, deletes) %}
    {%- set key = config.get("unique_key") -%}
    {%- set at = snapshot_get_time() if deletes == "new_record" else "ended.wap_end" -%}
    {%- set from = "changes." ~ names.dbt_valid_from -%}
    {%- set id = "changes." ~ names.dbt_scd_id -%}
    {%- set quoted = adapter.wap.quoted([names.dbt_valid_from, names.dbt_scd_id]) -%}
    {%- set returned = from ~ " <= ended.wap_end" -%}
    {%- set new_id = snapshot_hash_arguments([id, "ended.wap_end", "'returned'"]) -%}
    {%- set keys = [] -%}
    {%- for one in key if key is not string -%}
        {%- do keys.append("dbt_unique_key_" ~ loop.index) -%}
    {%- else -%}
        {%- do keys.append("dbt_unique_key") -%}
    {%- endfor -%}
    select changes.dbt_change_type,
        {%- if deletes == "new_record" %}
        if(changes.dbt_change_type = 'update', {{ snapshot_get_time() }}, null) as wap_at,
        {%- endif %}
        {%- for column in insert_cols %}
        {% if column == quoted[0] -%}
        if({{ returned }}, {{ at }}, {{ from }}) as {{ column }}
        {%- elif column == quoted[1] -%}
        if({{ returned }}, {{ new_id }}, {{ id }}) as {{ column }}
        {%- else -%}
        changes.{{ column }}
        {%- endif %}{{ "," if not loop.last }}
        {%- endfor %}
    from {{ source }} as changes
    left join (
        select {{ keys | join(", ") }},
            max(greatest({{ names.dbt_valid_from }}, {{ names.dbt_valid_to }})) as wap_end
        from (
            select *, {{ unique_key_fields(key) }} from {{ target }} as DBT_INTERNAL_DEST
            where not {{ _wap_is_current(names) }}
        )
        group by {{ keys | join(", ") }}
    ) as ended
        on changes.dbt_change_type = 'insert'
            and {{ unique_key_join_on(key, "ended", "changes") }}
            {%- if deletes == "new_record" %}
            and changes.{{ names.dbt_is_deleted }} = 'False'
            {%- endif %}
{% endmacro %}

{#-
    A hash without collisions: dbt-spark joins the values with '|' and nulls as '', so ('a|b', 'c')
    and ('a', 'b|c') have the same hash. Here each value is a field of its own.
-#}
{% macro sparkwap__snapshot_hash_arguments(args) %}
    sha2(to_json(struct(
        {%- for arg in args -%}
        cast({{ arg }} as string) as c{{ loop.index }}{{ ", " if not loop.last }}
        {%- endfor -%}
    )), 256)
{%- endmacro %}

{#- The deletion time of a missing row: `hard_deletes_at` over the source, or else now. -#}
{% macro sparkwap__snapshot_get_time() %}
    {%- set deleted_at = config.get("hard_deletes_at") -%}
    {%- if deleted_at -%}
        coalesce(
            (select {{ deleted_at }} from ({{ model["compiled_code"] }})),
            raise_error('The snapshot has keys to delete, but hard_deletes_at has no value: its '
                || 'query returns no rows, or only NULL. Nothing was written. If the source is '
                || 'empty, set the time: hard_deletes_at: "coalesce(..., current_timestamp())"')
        )
    {%- else -%}
        current_timestamp()
    {%- endif -%}
{% endmacro %}
