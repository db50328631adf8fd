{#-
    A replay builds an incremental model as a whole, from its inputs at the replay's moment, and
    adds nothing to the table's present rows. Otherwise as in dbt's macro of this name.
-#}
{% macro should_full_refresh() %}
    {%- if execute and adapter.wap.is_replay() -%}{{ return(true) }}{%- endif -%}
    {%- set of_model = config.get("full_refresh") -%}
    {{ return(flags.FULL_REFRESH if of_model is none else of_model) }}
{% endmacro %}
