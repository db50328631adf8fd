{% materialization seed, adapter='sparkwap' %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {%- set table = load_agate_table() -%}
    {#- dbt shows it, also if nothing is built. -#}
    {%- do store_result("agate_table", response="OK", agate_table=table) -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {%- do wap_check_config() -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- do wap_build_table(
        target_relation, adapter.wap.seed_sql(
            table, config.get("column_types") or {}, config.get("quote_columns") is not false)) -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.built(model.unique_id, target_relation) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
