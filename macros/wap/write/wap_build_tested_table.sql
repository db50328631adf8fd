{#-
    Build the throw-away table of a unit test: create it with the rows that it has before, and add
    the rows of the select as the build of the model or snapshot does. Called in the context of that
    node, where `this` is the throw-away table.

    before: SQL of the rows that the table has before; none if there is no table
    sql: the model's select over the given rows
-#}
{% macro wap_build_tested_table(before, sql) %}
    {%- do wap_check_config() -%}
    {%- do wap_run_sql_header() -%}
    {%- if before is not none -%}
        {%- call statement("before") -%}
            create table {{ this }} {{ wap_table_clauses(this) }} as {{ before }}
        {%- endcall -%}
    {%- endif -%}
    {%- if model.resource_type == "snapshot" -%}
        {%- do model.update({"compiled_code": sql}) -%}
        {%- do wap_build_snapshot(this, before is not none) -%}
    {%- else -%}
        {%- do wap_extend_table(this, sql, wap_incremental_strategy(),
            incremental_validate_on_schema_change(
                config.get("on_schema_change"), default="ignore")) -%}
    {%- endif -%}
{% endmacro %}
