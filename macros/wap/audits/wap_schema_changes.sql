{#-
    The candidate has the published columns with the same types. Passes while nothing is published.
    Reads only metadata.

    allowed  kinds of changes that pass (`added`, `removed`, `type`), and names of columns whose
             change somebody has checked; version control has the history of this list

    data_tests:
      - wap_schema_changes
      - wap_schema_changes:
          arguments: {allowed: [added, legacy_code]}
-#}
{% test wap_schema_changes(model, allowed=none) %}
    {{ adapter.wap.column_changes(context["model"], allowed) }}
{% endtest %}
