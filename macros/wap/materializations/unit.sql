{#-
    dbt's unit test. With `wap_expect` in its meta, it compares the expected rows with those that a
    table has after the build, instead of those of the model's select.
-#}
{% materialization unit, adapter='sparkwap' %}
    {%- set test = adapter.wap.table_test(model) -%}
    {%- if test is none -%}{{ return(materialization_unit_default()) }}{%- endif -%}
    {%- call adapter.wap.throw_away(test.this) -%}
        {%- do test["wap_build_tested_table"](test.before, sql) -%}
        {%- do context.update({"sql": "select * from " ~ test.this}) -%}
        {%- do materialization_unit_default() -%}
    {%- endcall -%}
    {{ return({"relations": []}) }}
{% endmaterialization %}
