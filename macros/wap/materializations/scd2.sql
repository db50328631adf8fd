{#-
    A history from a change log. The model selects change events: keys, payload, and the columns of
    the log (`change_events` writes this query). See docs/history.md.
-#}
{% materialization scd2, adapter='sparkwap' %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {#- dbt's default is `ignore`. Here new columns are appended unless the model sets it. -#}
    {%- set on_schema_change = incremental_validate_on_schema_change(
        config.get("on_schema_change") if "on_schema_change" in model.unrendered_config
        else "append_new_columns") -%}
    {%- set existing = load_relation(this) -%}
    {%- do wap_check_config() -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- set sql = wap_model_sql() -%}
    {#- Spark derives conditions from each filter for all columns of all windows below it. For a
        history of twenty columns, the plan takes minutes and all memory. The queries filter the log
        explicitly and do not need this. The session restores its setting at the node's end. -#}
    {%- do run_query("set spark.sql.constraintPropagation.enabled=false") -%}
    {%- set build = adapter.wap.history(model, sql, var("scd2_restate", none)) -%}
    {%- set whole = existing is none or existing.is_view or should_full_refresh() -%}
    {%- if whole -%}
        {%- set published = adapter.wap.published(this) -%}
        {%- set columns = adapter.get_columns_in_relation(this) | map(attribute="name") | list
            if published and build.history.surrogate_key else [] -%}
        {%- do wap_build_table(target_relation, build.whole(published, columns)) -%}
    {%- else -%}
        {%- do wap_extend_history(target_relation, build, on_schema_change) -%}
    {%- endif -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.built(model.unique_id, target_relation, must_write=whole) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
