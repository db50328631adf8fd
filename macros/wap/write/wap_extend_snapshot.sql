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
    {%- do wap_check_layout(relation) -%}
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
    {%- set open_end = config.get("dbt_valid_to_current") -%}
    {%- set ended = "DBT_INTERNAL_DEST." ~ names.dbt_valid_to -%}
    {%- set current -%}
        ({{ ended }} is null{% if open_end %} or {{ ended }} = {{ open_end }}{% endif %})
    {%- endset -%}
    merge into {{ target }} as DBT_INTERNAL_DEST
    using {{ source }} as DBT_INTERNAL_SOURCE
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
        then update set {{ names.dbt_valid_to }} = DBT_INTERNAL_SOURCE.{{ names.dbt_valid_to }}
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
