{% materialization snapshot, adapter='sparkwap' %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {%- set existing = load_relation(this) -%}
    {%- do wap_check_config() -%}
    {%- if existing is not none and not existing.is_table -%}
        {%- do exceptions.relation_wrong_type(existing, "table") -%}
    {%- endif -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- do wap_build_snapshot(target_relation, existing is not none) -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.built(
        model.unique_id, target_relation, must_write=existing is none) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
