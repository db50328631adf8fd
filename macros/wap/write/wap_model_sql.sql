{#-
    The model's rows as SQL. A Python model runs here; its frame becomes a temporary view of the
    node's own session, so that every materialization is written once for both languages.
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

{#- Spark takes one statement at a time; a header may hold several. -#}
{% macro wap_run_sql_header() %}
    {%- for part in adapter.wap.split_statements(config.get("sql_header") or "") -%}
        {%- do run_query(part) -%}
    {%- endfor -%}
{% endmacro %}
