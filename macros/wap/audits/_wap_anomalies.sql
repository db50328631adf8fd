{#-
    The query of an anomaly audit: it returns one row for each metric of the candidate that is an
    anomaly against the last published candidates. One statement measures all metrics that are not
    in the metadata. `sparkwap.audits.anomaly` compares them, and the query contains the result.

    metrics  dict: name of the metric -> SQL aggregate
    rule     dict of the arguments that define an anomaly
    scope    a further condition on the measured rows, besides the test's `where`
-#}
{% macro _wap_anomalies(name, model, metrics, rule, scope=none) %}
    {%- set test = context["model"] -%}
    {%- if not execute or not adapter.wap.is_building() -%}
        {{ return(adapter.wap.judge(name, test, {}, rule, scope)) }}
    {%- endif -%}
    {%- set values = adapter.wap.known_metrics(name, test, metrics.keys() | list, rule) -%}
    {%- set missing = metrics.keys() | reject("in", values) | list -%}
    {%- if missing -%}
        {%- set query -%}
            select
                {% for metric in missing -%}
                cast({{ metrics[metric] }} as double) as metric_{{ loop.index0 }}{{ "," if not loop.last }}
                {% endfor -%}
            from {{ model }}
        {%- endset -%}
        {%- set found = run_query(query).rows[0] -%}
        {%- for metric in missing -%}
            {%- do values.update({metric: found[loop.index0]}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(adapter.wap.judge(name, test, values, rule, scope)) }}
{% endmacro %}
