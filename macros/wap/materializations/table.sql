{% materialization table, adapter='sparkwap', supported_languages=['sql', 'python'] %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {%- do wap_check_config() -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- do wap_build_table(target_relation, wap_model_sql()) -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.enforce_constraints(model, target_relation) -%}
    {%- do adapter.wap.built(model.unique_id, target_relation) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
