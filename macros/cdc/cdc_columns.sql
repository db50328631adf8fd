{#- The columns that a `cdc_` table has in addition to the entity's; see src/sparkwap/cdc. -#}
{% macro cdc_columns() %}
    {{ return([
        "_op", "_is_deleted", "_sequence", "_event_time", "_load_date", "_file_path", "_row", "_part",
        "_batch", "row_hash", "_stated", "_message",
    ]) }}
{% endmacro %}
