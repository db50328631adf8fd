{#-
    On-run-end hook of every project: the gate decides, publishes and prints a summary. If the gate
    refuses something but dbt has no failure, it renders to a statement that the adapter makes fail.
-#}
{% macro wap_close_run(results) %}
    {%- if execute -%}
        {%- set closing = adapter.wap.close_run(results) -%}
        {%- for line in closing["lines"] -%}{%- do log(line, info=true) -%}{%- endfor -%}
        {%- if closing["failed"] -%}select 'the gate did not publish everything'{%- endif -%}
    {%- endif -%}
{% endmacro %}
