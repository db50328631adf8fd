{#-
    The present time as a SQL timestamp; in a replay (`--vars 'as_of: ...'`) the moment of the
    replay, so that repeated replays return the same rows. `dbt.current_timestamp()` is the same.

    example: where valid_to > {{ wap_now() }}
-#}
{% macro wap_now() %}
    {{- return(adapter.wap.now()) -}}
{% endmacro %}
