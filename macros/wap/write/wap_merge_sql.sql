{#- Upsert by `unique_key`; without a key, every row is an insert. -#}
{% macro wap_merge_sql(relation, increment, columns) %}
    {%- set keys = adapter.wap.list(config.get("unique_key")) -%}
    {%- set conditions = [] + wap_predicates() -%}
    {%- for key in keys or [] -%}
        {%- do conditions.append(
            "DBT_INTERNAL_SOURCE." ~ key ~ " = DBT_INTERNAL_DEST." ~ key) -%}
    {%- else -%}
        {%- do conditions.append("false") -%}
    {%- endfor -%}
    {%- set quoted = adapter.wap.quoted(columns) -%}
    {%- set chosen = config.get("merge_update_columns") -%}
    {%- set excluded = config.get("merge_exclude_columns") -%}
    {#- Only the increment's columns, because the table may have more. -#}
    {%- set updated = get_merge_update_columns(
        chosen, excluded,
        adapter.get_columns_in_relation(relation) | selectattr("name", "in", columns) | list)
        if chosen or excluded else quoted -%}
    merge into {{ relation }} as DBT_INTERNAL_DEST
    using {{ increment }} as DBT_INTERNAL_SOURCE
    on {{ conditions | join(" and ") }}
    when matched then update set
        {%- for column in updated %}
        {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ "," if not loop.last }}
        {%- endfor %}
    when not matched then insert ({{ quoted | join(", ") }})
        values (
            {%- for column in quoted -%}
            DBT_INTERNAL_SOURCE.{{ column }}{{ ", " if not loop.last }}
            {%- endfor -%}
        )
{% endmacro %}
