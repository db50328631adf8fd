{#-
    In a replay nothing is added to what stands there today: an incremental model is built as a
    whole, from what it read then. All else as in dbt's own macro of this name.
-#}
{% macro should_full_refresh() %}
    {%- if execute and adapter.wap.is_replay() -%}{{ return(true) }}{%- endif -%}
    {%- set of_model = config.get("full_refresh") -%}
    {{ return(flags.FULL_REFRESH if of_model is none else of_model) }}
{% endmacro %}
