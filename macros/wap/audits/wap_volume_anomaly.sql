{#-
    The candidate has about as many rows as the last published ones had. Costs no scan, where the
    table has no delete files and the test no `where`: the counts are in Iceberg's metadata.

    sensitivity  standard deviations from the mean beyond which a count is an anomaly (3)
    window       how many published candidates to compare with, at most (30)
    min_samples  how many there must be; with fewer the audit passes (7)
    direction    `drop`, `spike` or `both` (both)
    seasonality  `day_of_week`: compare with the same day of the week only; or `none` (none)
    tolerance    the part of the mean by which a count may differ anyhow (0.05)

    data_tests:
      - wap_volume_anomaly
      - wap_volume_anomaly:
          arguments: {direction: drop, sensitivity: 4}
-#}
{% test wap_volume_anomaly(
    model, sensitivity=none, window=none, min_samples=none, direction=none, seasonality=none,
    tolerance=none
) %}
    {%- set rule = {
        "sensitivity": sensitivity, "window": window, "min_samples": min_samples,
        "direction": direction, "seasonality": seasonality, "tolerance": tolerance,
    } -%}
    {{ _wap_anomalies("wap_volume_anomaly", model, {"row_count": "count(*)"}, rule) }}
{% endtest %}
