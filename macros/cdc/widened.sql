{#-
    The columns of `typed_columns`, with a wider type for those whose values, as a relation has
    them now, need one: bigint for an integer, 38 digits for a decimal. A column that the table has
    got wider stays so. The summary of the run tells of it.

    columns   as `typed_columns` takes them
    relation  where the values are, as text: the `cdc_` table

    stg_shop__orders.sql:
        select {{ typed_columns(widened({'id': 'int', 'amount': 'int'}, ref('cdc_shop__orders'))) }}
        from {{ ref('cdc_shop__orders') }}
        where not _is_deleted
-#}
{% macro widened(columns, relation) %}
    {#- Only a build asks the data: not `dbt compile`, nor a unit test, whose inputs are CTEs. -#}
    {%- if not execute or not adapter.wap.is_building() or relation.is_cte -%}
        {{ return(columns) }}
    {%- endif -%}
    {{ return(adapter.wap.widened_types(model, columns, load_relation(this), relation)) }}
{% endmacro %}
