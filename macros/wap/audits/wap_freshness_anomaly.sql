{#-
    The newest value of a date or timestamp column is not older than it was in the last published
    candidates, when they were audited: the metric is its age in hours.

    as_of        SQL that says when it is: an aggregate over the candidate, or a constant
                 (current_timestamp())
    direction    `spike` (older than usual), `drop` (newer), or `both` (spike)
    sensitivity, window, min_samples, seasonality, tolerance: see wap_volume_anomaly

    columns:
      - name: loaded_at
        data_tests: [wap_freshness_anomaly]
-#}
{% test wap_freshness_anomaly(
    model, column_name, as_of=none, sensitivity=none, window=none, min_samples=none,
    direction="spike", seasonality=none, tolerance=none
) %}
    {%- set rule = {
        "sensitivity": sensitivity, "window": window, "min_samples": min_samples,
        "direction": direction, "seasonality": seasonality, "tolerance": tolerance,
    } -%}
    {%- set now = as_of or "current_timestamp()" -%}
    {%- set newest = "max(" ~ adapter.quote(column_name) ~ ")" -%}
    {%- set age -%}
        (unix_micros(cast({{ now }} as timestamp)) - unix_micros(cast({{ newest }} as timestamp))) / 3600000000
    {%- endset -%}
    {{ _wap_anomalies("wap_freshness_anomaly", model, {"age_hours:" ~ column_name: age}, rule, as_of) }}
{% endtest %}
