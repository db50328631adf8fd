{#-
    The columns of a `cdc_` table for a select list, typed and renamed, in the order given; then
    those of its own columns that are not named, as text. So a column that a source adds flows
    through, until somebody gives it a type here. A value that a decimal would have to round fails
    the model: the landing entry quarantines it, if it gives the column the same type.

    columns  mapping of a source's column to a type, or to `type as name` under another name;
             `none` leaves the column out
    alias    what the `cdc_` table is called in the query

    stg_crm__customers.sql:
        select {{ typed_columns({'id': 'bigint as customer_id', 'name': 'string', 'x': none}) }}
        from {{ ref('cdc_crm__customers') }}
        where not _is_deleted
-#}
{% macro typed_columns(columns, alias=none) %}
    {%- set alias = alias ~ "." if alias else "" -%}
    {%- set parts = [] -%}
    {%- for column, wanted in columns.items() if wanted is not none -%}
        {%- set words = wanted.split(" as ") -%}
        {%- set name = adapter.quote(words[1] if words | length > 1 else column) -%}
        {%- set source = alias ~ adapter.quote(column) -%}
        {%- do parts.append(
            source ~ " as " ~ name if words[0] == "string"
            else adapter.wap.checked_cast(source, words[0], column) ~ " as " ~ name) -%}
    {%- endfor -%}
    {%- set known = [] -%}
    {%- for column in columns.keys() -%}
        {%- do known.append(adapter.quote(column)) -%}
    {%- endfor -%}
    {%- do parts.append(
        alias ~ "* except (" ~ (known + cdc_columns()) | join(", ") ~ ")") -%}
    {{- parts | join(",\n        ") -}}
{% endmacro %}
