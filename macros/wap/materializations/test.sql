{#- dbt's test; its stored failures pass the gate like every other table. -#}
{% materialization test, adapter='sparkwap' %}
    {%- set store = should_store_failures() -%}
    {%- set relations = [] -%}
    {%- do wap_run_sql_header() -%}
    {%- set rows = get_limit_subquery_sql(model["compiled_code"], config.get("limit")) -%}
    {%- if store -%}
        {%- set kind = config.get("store_failures_as") or "table" -%}
        {%- if kind not in ("table", "view") -%}
            {%- do exceptions.raise_compiler_error(
                "'" ~ kind ~ "' is not a valid value for `store_failures_as`. "
                ~ "Accepted values are: ['ephemeral', 'table', 'view']") -%}
        {%- endif -%}
        {%- set target_relation = this.incorporate(type=kind) -%}
        {%- do adapter.wap.place_failures(target_relation) -%}
        {%- call statement("store_failures") -%}
            create or replace {{ kind }} {{ target_relation }}
            {%- if kind == "table" %} {{ wap_table_clauses(target_relation) }}{% endif %}
            as
            {{ rows }}
        {%- endcall -%}
        {%- do adapter.wap.built(model.unique_id, target_relation) -%}
        {%- do relations.append(target_relation) -%}
        {%- set rows = "select * from " ~ target_relation -%}
    {%- endif -%}
    {%- set sql = get_test_sql(
        rows, config.get("fail_calc"), config.get("warn_if"),
        adapter.wap.error_if(model.unique_id) or config.get("error_if"), limit=none) -%}
    {%- if not store -%}
        {%- do adapter.wap.share(model, rows, sql) -%}
    {%- endif -%}
    {%- call statement("main", fetch_result=true) -%}{{ sql }}{%- endcall -%}
    {%- do adapter.wap.sample(model, rows, load_result("main")) -%}
    {{ return({"relations": relations}) }}
{% endmaterialization %}
