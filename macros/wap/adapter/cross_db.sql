{#- The cross-database macros of dbt-spark that return wrong or incomplete results. -#}

{#- dbt-spark uses a plain cast, which fails in ANSI mode instead of returning null. -#}
{% macro sparkwap__safe_cast(field, type) %}
    {%- set nested = cast_from_string_unsupported_for(type) and field is string -%}
    try_cast({{ field.strip('"').strip("'") if nested else field }} as {{ type }})
{%- endmacro %}

{#-
    dbt-spark ignores the order. With a limit, the values are joined with a character that text does
    not contain (unit separator), split, cut, and joined again.
-#}
{% macro sparkwap__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
    {%- set order = " within group (" ~ order_by_clause ~ ")" if order_by_clause else "" -%}
    {%- set text = measure.strip() -%}
    {%- set distinct = text.lower().startswith("distinct ") -%}
    {%- set value = ("distinct " if distinct else "") ~ "cast("
        ~ (text[9:] if distinct else text) ~ " as string)" -%}
    {%- if limit_num -%}
        array_join(slice(split(listagg({{ value }}, '\u001f'){{ order }}, '\u001f'), 1,
            {{ limit_num }}), {{ delimiter_text }})
    {%- else -%}
        listagg({{ value }}, {{ delimiter_text }}){{ order }}
    {%- endif -%}
{%- endmacro %}

{#- dbt-spark's result is wrong by up to a second for units below a second. -#}
{% macro sparkwap__dateadd(datepart, interval, from_date_or_timestamp) %}
    timestampadd({{ datepart }}, {{ interval }}, cast({{ from_date_or_timestamp }} as timestamp))
{%- endmacro %}

{#- In a replay, the moment of the replay. -#}
{% macro sparkwap__current_timestamp() -%}
    {{ wap_now() }}
{%- endmacro %}
