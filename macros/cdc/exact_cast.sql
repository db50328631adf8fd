{#-
    A text column of a `cdc_` table as an integer or a decimal, for a select list. It keeps each
    value: the type gets wider (bigint, or 38 digits) where the table has a value that needs it, and
    stays so; a value with more decimal places than the type has fails the model. The landing entry
    quarantines such a value before, if it gives the column the same type. The summary of the run
    tells of a wider type.

    column  the column of the `cdc_` table
    type    its type
    state   the `cdc_` table's relation
    name    the column that the cast makes, where it has another name

    stg_shop__orders.sql:
        select {{ exact_cast('amount', 'decimal(18, 2)', ref('cdc_shop__orders')) }} as amount
        from {{ ref('cdc_shop__orders') }}
        where not _is_deleted
-#}
{% macro exact_cast(column, type, state, name=none) -%}
    {%- set type = _widened_type(column, type, state, name or column) -%}
    {{- adapter.wap.checked_cast(adapter.quote(column), type, column) -}}
{%- endmacro %}

{#- Only a build asks the data: not `dbt compile`, nor a unit test, whose inputs are CTEs. -#}
{% macro _widened_type(column, type, state, name) %}
    {%- if not execute or not adapter.wap.is_building() or state.is_cte -%}
        {{ return(type) }}
    {%- endif -%}
    {{ return(adapter.wap.widened_type(model, column, type, name, load_relation(this), state)) }}
{% endmacro %}
