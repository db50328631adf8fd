{#-
    A text column of a `cdc_` table as an integer or a decimal without loss, for a select list. If a
    value needs a wider type (bigint, or 38 digits), the column gets and keeps this type, and the
    summary of the run reports it. A value with more decimal places than the type fails the model;
    if the landing entry has the same type, such a value is quarantined earlier.

    column  the column of the `cdc_` table
    type    its type
    state   the `cdc_` table's relation
    name    the name of the new column, if it differs

    stg_shop__orders.sql:
        select {{ exact_cast('amount', 'decimal(18, 2)', ref('cdc_shop__orders')) }} as amount
        from {{ ref('cdc_shop__orders') }}
        where not _is_deleted
-#}
{% macro exact_cast(column, type, state, name=none) -%}
    {%- set type = _widened_type(column, type, state, name or column) -%}
    {{- adapter.wap.checked_cast(adapter.quote(column), type, column) -}}
{%- endmacro %}

{#- Only a build queries the data; `dbt compile` and unit tests, whose inputs are CTEs, do not. -#}
{% macro _widened_type(column, type, state, name) %}
    {%- if not execute or not adapter.wap.is_building() or state.is_cte -%}
        {{ return(type) }}
    {%- endif -%}
    {{ return(adapter.wap.widened_type(model, column, type, name, load_relation(this), state)) }}
{% endmacro %}
