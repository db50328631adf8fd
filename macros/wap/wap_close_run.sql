{#-
    On-run-end hook of every project: the gate decides, publishes, and prints what it did. Where dbt
    does not know of a failure it renders to a statement, which the adapter lets fail.
-#}
{% macro wap_close_run(results) %}
    {%- if execute -%}
        {%- set closing = adapter.wap.close_run(results) -%}
        {%- for line in closing["lines"] -%}{%- do log(line, info=true) -%}{%- endfor -%}
        {%- if closing["failed"] -%}select 'the gate did not publish everything'{%- endif -%}
    {%- endif -%}
{% endmacro %}
