{% materialization incremental, adapter='sparkwap', supported_languages=['sql', 'python'] %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {%- set strategy = wap_incremental_strategy() -%}
    {%- set on_schema_change = incremental_validate_on_schema_change(
        config.get("on_schema_change"), default="ignore") -%}
    {%- set existing = load_relation(this) -%}
    {%- do wap_check_config() -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- set sql = wap_model_sql() -%}
    {%- set batch = adapter.wap.begin_batch(model, target_relation)
        if strategy == "microbatch" else none -%}
    {%- if batch and batch.checked -%}{%- set sql = wap_batch_rows(sql) -%}{%- endif -%}
    {%- set whole = existing is none or existing.is_view or should_full_refresh() -%}
    {%- if whole -%}
        {%- if batch and existing is not none -%}
            {%- do adapter.wap.require_all(model, target_relation) -%}
        {%- endif -%}
        {%- do wap_build_table(target_relation, sql) -%}
    {%- else -%}
        {%- do wap_extend_table(target_relation, sql, strategy, on_schema_change, batch) -%}
    {%- endif -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.enforce_constraints(model, target_relation) -%}
    {%- do adapter.wap.built(model.unique_id, target_relation, must_write=whole) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
