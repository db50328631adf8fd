{#- Build a snapshot, or add the changes of the source if the snapshot exists. -#}
{% macro wap_build_snapshot(relation, exists) %}
    {%- set strategy_macro = strategy_dispatch(config.get("strategy")) -%}
    {%- set strategy = strategy_macro(
        model, "snapshotted_data", "source_data", model["config"], exists) -%}
    {%- if exists -%}
        {%- do wap_extend_snapshot(relation, strategy) -%}
    {%- else -%}
        {%- do wap_build_table(relation, build_snapshot_table(strategy, model["compiled_code"])) -%}
    {%- endif -%}
{% endmacro %}
