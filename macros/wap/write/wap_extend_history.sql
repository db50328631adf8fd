{#- Bring a history up to its log, see src/sparkwap/cdc/history/extend.py. -#}
{% macro wap_extend_history(relation, history, on_schema_change) %}
    {%- set marks = history.marks(relation) -%}
    {%- set shape = wap_temporary_view(relation, history.shape_sql()) -%}
    {%- set columns = wap_place_increment(relation, shape, on_schema_change, widen=true) -%}
    {%- set extension = history.extension(relation, columns, marks, invocation_id[:8]) -%}
    {%- set merge = extension.merge_sql() -%}
    {%- if merge -%}
        {%- call statement("main") -%}{{ merge }}{%- endcall -%}
    {%- else -%}
        {%- do store_raw_result("main", message="OK", code="OK", rows_affected="-1") -%}
    {%- endif -%}
    {%- do extension.drop() -%}
{% endmacro %}
