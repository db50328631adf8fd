{#- On-run-end hook of every project: the gate decides, publishes, and prints what it did. -#}
{% macro wap_close_run(results) %}
    {%- if execute -%}
        {%- set closing = adapter.wap_close_run(results) -%}
        {%- for line in closing["lines"] -%}{%- do log(line, info=true) -%}{%- endfor -%}
        {%- if closing["error"] -%}{%- do adapter.wap_error(closing["error"]) -%}{%- endif -%}
    {%- endif -%}
{% endmacro %}
