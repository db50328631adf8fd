{#- `dbt clone`: a copy of a table shares its files; a copy of a view selects from it. -#}
{% materialization clone, adapter='sparkwap' %}
    {%- set relations = {"relations": []} -%}
    {%- if not defer_relation -%}
        {%- do log("No relation found in state manifest for " ~ model.unique_id, info=True) -%}
        {{ return(relations) }}
    {%- endif -%}
    {%- set existing = load_relation(this) -%}
    {%- if existing and not flags.FULL_REFRESH -%}
        {%- do log("Relation " ~ existing ~ " already exists", info=True) -%}
        {{ return(relations) }}
    {%- endif -%}
    {%- if this.schema == defer_relation.schema
        and this.identifier == defer_relation.identifier -%}
        {%- do log("Target relation and defer relation are the same, skipping clone for relation: "
            ~ this) -%}
        {{ return(relations) }}
    {%- endif -%}
    {%- do wap_check_config() -%}
    {%- set other = adapter.wap.live(defer_relation) -%}
    {%- if other is not none and other.kind == "table" -%}
        {%- set target_relation = this.incorporate(type="table") -%}
        {%- do adapter.wap.place_copy(target_relation, defer_relation) -%}
        {%- do store_raw_result("main", message="CLONE", code="CLONE", rows_affected="-1") -%}
    {%- else -%}
        {%- set target_relation = this.incorporate(type="view") -%}
        {%- do adapter.wap.place_beside(target_relation) -%}
        {%- call statement("main") -%}
            create or replace view {{ target_relation }} as select * from {{ defer_relation }}
        {%- endcall -%}
    {%- endif -%}
    {%- do adapter.wap.built(model.unique_id, target_relation) -%}
    {{ return({"relations": [target_relation]}) }}
{% endmaterialization %}
