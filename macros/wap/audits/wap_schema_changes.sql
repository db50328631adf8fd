{#-
    The candidate has the columns that readers of main have now, with the same types. Passes while
    nothing is published. Reads metadata only.

    allowed  kinds of changes that are no matter (`added`, `removed`, `type`), and names of columns
             whose change was looked into and found right: the record of that, in version control

    data_tests:
      - wap_schema_changes
      - wap_schema_changes:
          arguments: {allowed: [added, legacy_code]}
-#}
{% test wap_schema_changes(model, allowed=none) %}
    {{ adapter.wap.column_changes(context["model"], allowed) }}
{% endtest %}
