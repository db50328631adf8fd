{#- dbt calls this macro in some places where it needs the adapter's method. -#}
{% macro sparkwap__get_columns_in_relation(relation) %}
    {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}

{#-
    A column as a contract compares it: as dbt documents it, with the type without size, precision
    and scale, unless the model's `contract_types` is `exact`.
-#}
{% macro sparkwap__format_column(column) %}
    {%- set type = column.dtype if config.get("contract_types") == "exact"
        else adapter.wap.type_family(column.dtype) -%}
    {{ return({
        "name": column.name, "data_type": type, "formatted": column.column.lower() ~ " " ~ type}) }}
{% endmacro %}

{#-
    A query without rows that has the columns of a contract. dbt's macro warns about a decimal
    without precision, because it would round values in a table that has the contract's types. Here
    the table has the query's types.
-#}
{% macro sparkwap__get_empty_schema_sql(columns) %}
    {%- set untyped = columns.values() | rejectattr("data_type") | map(attribute="name") | list -%}
    {%- if untyped -%}
        {%- do exceptions.column_type_missing(column_names=untyped) -%}
    {%- endif -%}
    select
        {%- for column in columns.values() %}
        cast(null as {{ column["data_type"] }}) as
            {{ adapter.quote(column["name"]) if column.get("quote") else column["name"] }}
            {{- "," if not loop.last }}
        {%- endfor %}
{% endmacro %}

{#- Without the model's header, which is a separate statement that this session has run before. -#}
{% macro sparkwap__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
    select * from (
        {{ select_sql }}
    ) as __dbt_sbq
    where false
    limit 0
{% endmacro %}

{% macro sparkwap__create_columns(relation, columns) %}
    {%- if columns -%}
        {%- call statement("add_columns") -%}
            alter table {{ relation.render() }} add columns (
                {%- for column in columns %}
                {{ adapter.quote(column.name) }} {{ column.dtype }}{{ "," if not loop.last }}
                {%- endfor %}
            )
        {%- endcall -%}
    {%- endif -%}
{% endmacro %}

{% macro sparkwap__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
    {%- do sparkwap__create_columns(relation, add_columns) -%}
    {%- if remove_columns -%}
        {%- set names = remove_columns | map(attribute="name") | list -%}
        {%- call statement("drop_columns") -%}
            alter table {{ relation.render() }} drop columns ({{ adapter.wap.quoted(names) | join(", ") }})
        {%- endcall -%}
    {%- endif -%}
{% endmacro %}

{#- Iceberg widens types in place; any other change needs a second column. -#}
{% macro sparkwap__alter_column_type(relation, column_name, new_column_type) %}
    {%- set column = adapter.quote(column_name) -%}
    {#- With --empty a relation renders to a subquery without rows; render() returns its name. -#}
    {%- set table = relation.render() -%}
    {%- if adapter.wap.widens(relation, column_name, new_column_type) -%}
        {%- do run_query(
            "alter table " ~ table ~ " alter column " ~ column ~ " type " ~ new_column_type) -%}
    {%- else -%}
        {%- set second = adapter.quote(column_name ~ "__dbt_alter") -%}
        {%- do run_query(
            "alter table " ~ table ~ " add column " ~ second ~ " " ~ new_column_type) -%}
        {%- do run_query("update " ~ table ~ " set " ~ second ~ " = cast(" ~ column
            ~ " as " ~ new_column_type ~ ")") -%}
        {%- do run_query("alter table " ~ table ~ " drop column " ~ column) -%}
        {%- do run_query(
            "alter table " ~ table ~ " rename column " ~ second ~ " to " ~ column) -%}
    {%- endif -%}
{% endmacro %}

{% macro sparkwap__persist_docs(relation, model, for_relation, for_columns) %}
    {%- if for_relation and config.persist_relation_docs() -%}
        {%- do run_query("comment on table " ~ relation.render() ~ " is "
            ~ wap_string(model.description or "")) -%}
    {%- endif -%}
    {%- if for_columns and config.persist_column_docs() and model.columns -%}
        {%- set present = adapter.get_columns_in_relation(relation)
            | map(attribute="name") | list -%}
        {%- do alter_column_comment(
            relation, validate_doc_columns(relation, model.columns, present)) -%}
    {%- endif -%}
{% endmacro %}

{% macro sparkwap__alter_column_comment(relation, column_dict) %}
    {%- set documented = {} -%}
    {%- for name, column in column_dict.items() -%}
        {%- do documented.update({name | lower: column}) -%}
    {%- endfor -%}
    {%- for column in adapter.get_columns_in_relation(relation) -%}
        {%- set known = documented.get(column.name | lower) -%}
        {%- if known -%}
            {%- do run_query("alter table " ~ relation.render() ~ " alter column "
                ~ adapter.quote(column.name) ~ " comment " ~ wap_string(known["description"] or "")) -%}
        {%- endif -%}
    {%- endfor -%}
{% endmacro %}
