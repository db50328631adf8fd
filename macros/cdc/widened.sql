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
    {%- if not execute or not adapter.wap_is_building() or relation.is_cte -%}
        {{ return(columns) }}
    {%- endif -%}
    {%- set standing = {} -%}
    {%- set table = load_relation(this) -%}
    {%- if table is not none -%}
        {%- for column in adapter.get_columns_in_relation(table) -%}
            {%- do standing.update({column.name: column.dtype}) -%}
        {%- endfor -%}
    {%- endif -%}
    {%- set narrow, questions = [], [] -%}
    {%- set fitting = dict(columns) -%}
    {%- for column, wanted in columns.items() if wanted is not none -%}
        {%- set words = wanted.split(" as ") -%}
        {%- set wide = adapter.wap_wider(words[0]) -%}
        {%- if wide is not none -%}
            {%- set name = words[1] if words | length > 1 else column -%}
            {%- do fitting.update({column: wide ~ " as " ~ name}) -%}
            {%- if standing.get(name) != wide -%}
                {%- set value = adapter.quote(column) -%}
                {%- do narrow.append({"column": column, "wanted": wanted, "type": words[0]}) -%}
                {%- do questions.append(
                    "count_if(" ~ value ~ " is not null and try_cast(" ~ value ~ " as " ~ words[0]
                    ~ ") is null)") -%}
            {%- endif -%}
        {%- endif -%}
    {%- endfor -%}
    {%- if questions -%}
        {%- set counts = run_query(
            "select " ~ questions | join(", ") ~ " from " ~ relation ~ " where not _is_deleted"
        ).rows[0].values() -%}
        {%- for one in narrow -%}
            {%- if counts[loop.index0] -%}
                {%- do adapter.wap_tell(
                    model.unique_id, "column " ~ one["column"] ~ ": " ~ counts[loop.index0]
                    ~ " values are no " ~ one["type"] ~ "; its type is now "
                    ~ adapter.wap_wider(one["type"])) -%}
            {%- else -%}
                {%- do fitting.update({one["column"]: one["wanted"]}) -%}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(fitting) }}
{% endmacro %}
