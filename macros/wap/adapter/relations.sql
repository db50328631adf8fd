{#- A temporary view belongs to the session, so it has no schema. -#}
{% macro sparkwap__make_temp_relation(base_relation, suffix) %}
    {%- set name = base_relation.identifier ~ suffix -%}
    {%- set view = api.Relation.create(identifier=name, type="view") -%}
    {{ return(view.include(database=false, schema=false)) }}
{% endmacro %}

{% macro sparkwap__drop_relation(relation) %}
    {%- call statement("drop_relation", auto_begin=false) -%}
        drop {{ relation.type or "table" }} if exists {{ relation.render() }}
    {%- endcall -%}
{% endmacro %}

{% macro sparkwap__rename_relation(from_relation, to_relation) %}
    {%- call statement("rename_relation") -%}
        alter {{ from_relation.type or "table" }} {{ from_relation.render() }} rename to {{ to_relation.render() }}
    {%- endcall -%}
{% endmacro %}

{% macro sparkwap__create_schema(relation) %}
    {%- do adapter.create_schema(relation) -%}
{% endmacro %}

{% macro sparkwap__drop_schema(relation) %}
    {%- do adapter.drop_schema(relation) -%}
{% endmacro %}
