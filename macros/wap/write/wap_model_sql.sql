{#-
    The model's rows as SQL. A Python model runs here, and its frame becomes a temporary view in the
    node's session, so that the materializations need no code for Python.
-#}
{% macro wap_model_sql() %}
    {%- do wap_run_sql_header() -%}
    {%- if model["language"] == "python" -%}
        {%- set view = model["alias"] ~ "__dbt_py" -%}
        {%- do adapter.wap.python_view(model, model["compiled_code"], view) -%}
        {{ return("select * from " ~ adapter.quote(view)) }}
    {%- endif -%}
    {{ return(model["compiled_code"]) }}
{% endmacro %}

{#- Spark runs one statement at a time, but a header may contain several. -#}
{% macro wap_run_sql_header() %}
    {%- for part in adapter.wap.split_statements(config.get("sql_header") or "") -%}
        {%- do run_query(part) -%}
    {%- endfor -%}
{% endmacro %}
