{#-
    Build a whole table from `sql`: on the audit branch if columns and layout do not change,
    otherwise in the side schema. A live table is never replaced.
-#}
{% macro wap_build_table(relation, sql) %}
    {%- if config.get("contract").enforced -%}
        {%- do get_assert_columns_equivalent(sql) -%}
        {%- set sql = get_select_subquery(sql) -%}
    {%- endif -%}
    {%- set columns = wap_wanted_columns(wap_query_columns(sql)) -%}
    {%- for column in columns if not config.get("contract").enforced -%}
        {#- The table may have a `not null` of a contract that the model no longer has. -#}
        {%- do column.update({"nullable": true}) -%}
    {%- endfor -%}
    {%- set place = adapter.wap.place_table(relation, columns, wap_layout()) -%}
    {%- if place == "branch" -%}
        {#- Unlike `insert overwrite`, does not depend on the session's overwrite mode. -#}
        {%- call statement("main") -%}
            insert into {{ relation }} replace where (true)
            {{ sql }}
        {%- endcall -%}
    {%- elif wap_needs_ddl(columns) -%}
        {%- do run_query(wap_create_table_ddl(relation, columns)) -%}
        {%- do _wap_order_files(relation) -%}
        {%- call statement("main") -%}
            insert into {{ relation }}
            {{ sql }}
        {%- endcall -%}
    {%- else -%}
        {%- call statement("main") -%}
            create or replace table {{ relation }}
            {{ wap_table_clauses(relation) }}
            as
            {{ sql }}
        {%- endcall -%}
    {%- endif -%}
{% endmacro %}

{#- Names and types of a query's columns, by one statement that reads no data. -#}
{% macro wap_query_columns(sql) %}
    {%- set columns = [] -%}
    {%- for column in adapter.get_column_schema_from_query(sql) -%}
        {%- do columns.append({"name": column.name, "type": column.dtype}) -%}
    {%- endfor -%}
    {{ return(columns) }}
{% endmacro %}

{#- Columns with `not null` of the model's YAML, and its comments if dbt persists them. -#}
{% macro wap_wanted_columns(columns) %}
    {%- set given = model.columns or {} -%}
    {%- if config.persist_column_docs() -%}
        {#- Warns about columns that do not exist; compares a quoted name with case. -#}
        {%- set given = validate_doc_columns(
            this, given, columns | map(attribute="name") | list) -%}
    {%- endif -%}
    {%- set documented = {} -%}
    {%- for name, column in given.items() -%}
        {%- do documented.update({name | lower: column}) -%}
    {%- endfor -%}
    {%- for column in columns -%}
        {%- set known = documented.get(column["name"] | lower, {}) -%}
        {%- if config.persist_column_docs() -%}
            {%- do column.update({"doc": known.get("description") or ""}) -%}
        {%- endif -%}
        {%- if config.get("contract").enforced -%}
            {%- set not_null = (known.get("constraints") or [])
                | selectattr("type", "equalto", "not_null") | list -%}
            {%- do column.update({"nullable": not_null | length == 0}) -%}
        {%- endif -%}
    {%- endfor -%}
    {{ return(columns) }}
{% endmacro %}

{#- A plain `create table as select` has no syntax for not null, comments or a sort order. -#}
{% macro wap_needs_ddl(columns) %}
    {%- set special = columns | selectattr("doc") | list
        + columns | selectattr("nullable", "false") | list -%}
    {{ return(special | length > 0 or config.get("sort_by") is not none) }}
{% endmacro %}

{% macro wap_create_table_ddl(relation, columns) %}
    create or replace table {{ relation }} (
        {%- for column in columns %}
        {{ adapter.quote(column["name"]) }} {{ column["type"] }}
            {%- if column["nullable"] is false %} not null{% endif %}
            {%- if column["doc"] %} comment {{ wap_string(column["doc"]) }}{% endif %}
            {%- if not loop.last %},{% endif %}
        {%- endfor %}
    )
    {{ wap_table_clauses(relation) }}
{% endmacro %}

{% macro _wap_order_files(relation) %}
    {%- set order = adapter.wap.list(config.get("sort_by")) -%}
    {%- if order -%}
        {%- do run_query("alter table " ~ relation ~ " write ordered by " ~ order | join(", ")) -%}
    {%- endif -%}
{% endmacro %}

{#- Whether the node needs no build, because code and inputs are as at its last publish. -#}
{% macro wap_reused() %}
    {%- if adapter.wap.is_reused(model.unique_id) -%}
        {%- do store_raw_result("main", message="REUSED", code="REUSED", rows_affected="-1") -%}
        {{ return(true) }}
    {%- endif -%}
    {{ return(false) }}
{% endmacro %}
