{#-
    The model's rows as SQL. A Python model runs here, and its frame becomes a temporary view in the
    node's session, so that the materializations need no code for Python.
-#}
{% macro wap_model_sql() %}
    {%- do wap_run_sql_header() -%}
    {%- if model["language"] == "python" -%}
        {#- Spark reads the name as SQL, without quotes. -#}
        {%- set view = modules.re.sub("[^a-zA-Z0-9_]", "_", model["alias"]) ~ "__dbt_py" -%}
        {%- do adapter.wap.python_view(model, model["compiled_code"], view) -%}
        {{ return("select * from " ~ adapter.quote(view)) }}
    {%- endif -%}
    {{ return(model["compiled_code"]) }}
{% endmacro %}

{#-
    Run a node's hooks. Spark has no transactions: hooks that dbt runs outside of them are the first
    before the build, and the last after it.
-#}
{% macro wap_run_hooks(hooks, after=false) %}
    {%- set inside = [] -%}
    {%- for hook in hooks | sort(attribute="transaction", reverse=after) -%}
        {%- do inside.append(dict(hook, transaction=true)) -%}
    {%- endfor -%}
    {{ run_hooks(inside) }}
{% endmacro %}

{#- Spark runs one statement at a time, but a header may contain several. -#}
{% macro wap_run_sql_header() %}
    {%- for part in adapter.wap.split_statements(config.get("sql_header") or "") -%}
        {%- do run_query(part) -%}
    {%- endfor -%}
{% endmacro %}
