{#-
    The present, as a SQL expression of type timestamp; in a replay (`--vars 'as_of: ...'`) its
    moment, so that the same replay gives the same rows. `dbt.current_timestamp()` means it, too.

    example: where valid_to > {{ wap_now() }}
-#}
{% macro wap_now() %}
    {{- return(adapter.wap.now()) -}}
{% endmacro %}
