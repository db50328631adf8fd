{#-
    The query of an anomaly audit: it returns a row for each metric of the candidate that is not
    what the last published ones lead to expect. Measures in one statement what the metadata does
    not tell; the figures are judged by `sparkwap.audits.anomaly`, and stand in the query.

    metrics  dict: name of the metric -> SQL aggregate
    rule     dict of the arguments that say what an anomaly is
    scope    what else the metrics depend on, besides the test's `where`
-#}
{% macro _wap_anomalies(name, model, metrics, rule, scope=none) %}
    {%- set test = context["model"] -%}
    {%- if not execute or not adapter.wap.is_building() -%}
        {{ return(adapter.wap.judge(name, test, {}, rule, scope)) }}
    {%- endif -%}
    {%- set values = adapter.wap.known_metrics(name, test, metrics.keys() | list, rule) -%}
    {%- set asked = metrics.keys() | reject("in", values) | list -%}
    {%- if asked -%}
        {%- set query -%}
            select
                {% for metric in asked -%}
                cast({{ metrics[metric] }} as double) as metric_{{ loop.index0 }}{{ "," if not loop.last }}
                {% endfor -%}
            from {{ model }}
        {%- endset -%}
        {%- set found = run_query(query).rows[0] -%}
        {%- for metric in asked -%}
            {%- do values.update({metric: found[loop.index0]}) -%}
        {%- endfor -%}
    {%- endif -%}
    {{ return(adapter.wap.judge(name, test, values, rule, scope)) }}
{% endmacro %}
