{#-
    Metrics of a column are close to those of the last published candidates. One scan measures all
    metrics of an audit.

    metrics      a name or a list of: null_share, blank_share, zero_share, distinct_count,
                 distinct_share, min, max, sum, mean, stddev, min_length, max_length, mean_length
                 (null_share and distinct_count)
    tolerance    as in wap_volume_anomaly; for shares an absolute difference (0.01)
    sensitivity, window, min_samples, direction, seasonality: see wap_volume_anomaly

    columns:
      - name: amount
        data_tests:
          - wap_column_anomaly:
              arguments: {metrics: [null_share, mean, max]}
-#}
{% test wap_column_anomaly(
    model, column_name, metrics=none, sensitivity=none, window=none, min_samples=none,
    direction=none, seasonality=none, tolerance=none
) %}
    {%- set rule = {
        "sensitivity": sensitivity, "window": window, "min_samples": min_samples,
        "direction": direction, "seasonality": seasonality, "tolerance": tolerance,
    } -%}
    {%- set wanted = adapter.wap.column_metrics(column_name, metrics or ["null_share", "distinct_count"]) -%}
    {{ _wap_anomalies("wap_column_anomaly", model, wanted, rule) }}
{% endtest %}
