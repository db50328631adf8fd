{#- dbt's cross-database macros where dbt-spark's mean something else, or less, than they should. -#}

{#- dbt-spark's is a plain cast, which is an error under ANSI where this one is null. -#}
{% macro sparkwap__safe_cast(field, type) %}
    {%- set nested = cast_from_string_unsupported_for(type) and field is string -%}
    try_cast({{ field.strip('"').strip("'") if nested else field }} as {{ type }})
{%- endmacro %}

{#-
    dbt-spark's ignores the order. With a limit the values are joined by a character that no text
    holds (unit separator), cut, and joined again.
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

{#- dbt-spark's adds a whole second too little, or none, for units below one. -#}
{% macro sparkwap__dateadd(datepart, interval, from_date_or_timestamp) %}
    timestampadd({{ datepart }}, {{ interval }}, cast({{ from_date_or_timestamp }} as timestamp))
{%- endmacro %}

{#- In a replay its moment. -#}
{% macro sparkwap__current_timestamp() -%}
    {{ wap_now() }}
{%- endmacro %}
