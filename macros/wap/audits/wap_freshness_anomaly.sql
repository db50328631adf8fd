{#-
    The newest value of a date or timestamp column is not older than usual. The metric is its age in
    hours, which is compared with the ages in the last published candidates at their audits.

    as_of        SQL of the present time: an aggregate over the candidate, or a constant
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
