{#-
    Extend a history with the new rows of its log; see src/sparkwap/cdc/history/extend.py. The stage
    has a name per run, because a failed run may have left temporary tables in the session.
-#}
{% macro wap_extend_history(relation, build, on_schema_change) %}
    {%- set marks = build.marks(relation) -%}
    {%- set shape = wap_temporary_view(relation, build.shape()) -%}
    {%- set columns = wap_place_increment(relation, shape, on_schema_change) -%}
    {%- set stage = relation.identifier ~ "_" ~ invocation_id[:8] ~ "_" -%}
    {%- set extension = build.extension(relation, columns, marks, stage) -%}
    {%- set merge = extension.merge_sql() -%}
    {%- if merge -%}
        {%- call statement("main") -%}{{ merge }}{%- endcall -%}
    {%- else -%}
        {%- do store_raw_result("main", message="OK", code="OK", rows_affected="-1") -%}
    {%- endif -%}
    {%- do extension.drop() -%}
{% endmacro %}
