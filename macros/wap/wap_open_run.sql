{#- On-run-start hook of every project: opens the run and its audit branch. -#}
{% macro wap_open_run() %}
    {%- if execute -%}
        {%- set branch = adapter.wap.open_run(selected_resources) -%}
        {%- if branch -%}{%- do log("sparkwap: writing to audit branch " ~ branch) -%}{%- endif -%}
    {%- endif -%}
{% endmacro %}
