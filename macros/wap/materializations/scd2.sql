{#-
    History from a change log. The model selects change events: keys, payload, and the log's own
    columns (`change_events` writes that query). See docs/history.md.
-#}
{% materialization scd2, adapter='sparkwap' %}
    {%- set target_relation = this.incorporate(type="table") -%}
    {#- dbt has a default of its own, `ignore`; here a new column is taken unless it is said. -#}
    {%- set on_schema_change = incremental_validate_on_schema_change(
        config.get("on_schema_change") if "on_schema_change" in model.unrendered_config
        else "append_new_columns") -%}
    {%- set existing = load_relation(this) -%}
    {%- do wap_check_config() -%}
    {{ run_hooks(pre_hooks) }}
    {%- set sql = wap_model_sql() -%}
    {#- Else Spark derives conditions from each filter for all columns of all windows before it, and
        a history of twenty columns takes minutes and all memory to plan. Of no use here: the log is
        filtered by what stands in the queries. The session's, undone when the node ends. -#}
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
    {{ run_hooks(post_hooks) }}
    {%- do adapter.wap.built(model.unique_id, target_relation, must_write=whole) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
