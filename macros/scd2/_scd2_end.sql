{#- The moment at which a version ends: the first one that is not its own. -#}
{% macro _scd2_end(valid_to, expire) -%}
    {%- if expire not in ("next_start", "day_before") -%}
        {%- do exceptions.raise_compiler_error(
            "scd2: expire is '" ~ expire ~ "'; legal values: next_start, day_before") -%}
    {%- endif -%}
    {{- "date_add(" ~ valid_to ~ ", 1)" if expire == "day_before" else valid_to -}}
{%- endmacro %}

{#- The end of a version as the earliest start of the next one; NULL if the version is current. -#}
{% macro _scd2_next_start(valid_to, expire) -%}
    if(
        cast({{ valid_to }} as string) < '9999-12-31',
        {{ _scd2_end(valid_to, expire) }},
        null
    )
{%- endmacro %}

{#- The versions of a history, each with its end and with the start of the next one of its key. -#}
{% macro _scd2_versions(model, key, valid_from, valid_to, expire) -%}
    select
        {{ _scd2_keys(key) }},
        {{ valid_from }},
        {{ _scd2_next_start(valid_to, expire) }} as ended,
        lead({{ valid_from }}) over (
            partition by {{ _scd2_keys(key) }}
            order by {{ valid_from }}, {{ valid_to }} nulls last
        ) as next_valid_from
    from {{ model }}
{%- endmacro %}
