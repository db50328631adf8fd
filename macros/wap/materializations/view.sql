{% materialization view, adapter='sparkwap' %}
    {%- set target_relation = this.incorporate(type="view") -%}
    {%- if wap_reused() -%}{{ return({"relations": [target_relation]}) }}{%- endif -%}
    {%- do wap_check_config() -%}
    {{ wap_run_hooks(pre_hooks) }}
    {%- do wap_run_sql_header() -%}
    {%- do adapter.wap.place_beside(target_relation) -%}
    {%- call statement("main") -%}
        {{ get_create_view_as_sql(target_relation, model["compiled_code"]) }}
    {%- endcall -%}
    {{ wap_run_hooks(post_hooks, after=true) }}
    {%- do adapter.wap.built(model.unique_id, target_relation) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}

{% macro sparkwap__create_view_as(relation, sql) %}
    {%- if config.get("contract").enforced -%}
        {%- do get_assert_columns_equivalent(sql) -%}
    {%- endif -%}
    create or replace view {{ relation }}
    {%- if config.persist_column_docs() %} (
        {%- for column in wap_wanted_columns(wap_query_columns(sql)) %}
        {{ adapter.quote(column["name"]) }}
            {%- if column["doc"] %} comment {{ wap_string(column["doc"]) }}{% endif %}
            {%- if not loop.last %},{% endif %}
        {%- endfor %}
    )
    {%- endif %}
    {%- if config.persist_relation_docs() and model.description %}
    comment {{ wap_string(model.description) }}
    {%- endif %}
    as
    {{ sql }}
{% endmacro %}
