{#-
    The row count of the candidate is close to those of the last published candidates. The counts
    come from Iceberg's metadata, without a scan, if the table has no delete files and the test no
    `where`.

    sensitivity  standard deviations from the mean beyond which a count is an anomaly (3)
    window       maximum number of published candidates to compare with (30)
    min_samples  minimum number of them; with fewer the audit passes (7)
    direction    `drop`, `spike` or `both` (both)
    seasonality  `day_of_week`: compare only with the same day of the week; or `none` (none)
    tolerance    share of the mean by which a count may always differ (0.05)

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
