{#-
    Joins several histories of the same keys into one, with a version for each span in which none of
    them changes. A version starts where a version of a source starts or ends.

        {{ scd2_join('customer_id', [
            {'history': ref('scd_customers'), 'columns': ['name', 'segment']},
            {'history': ref('scd_addresses'), 'columns': ['street', 'city']},
        ]) }}

    args:
        key: the key column, or a list; of the same name in all histories
        histories: dicts of
            history               a relation
            columns               list of names; or SQL by name, to rename
            valid_from, valid_to  its columns, if they have other names
            expire                `day_before` if the end of a version still belongs to it
        how: where a history has no version: `outer` returns NULLs, `inner` no row
    returns: SQL of keys, columns, valid_from, valid_to, is_current, version. An end of
        9999-12-31 counts as open.
-#}
{% macro scd2_join(key, histories, how='outer') -%}
    {%- if how not in ("outer", "inner") -%}
        {%- do exceptions.raise_compiler_error(
            "scd2_join: how is '" ~ how ~ "'; legal values: outer, inner") -%}
    {%- endif -%}
    {%- set keys = [key] if key is string else key -%}
    {%- set sources = [] -%}
    with
    {% for one in histories -%}
    {%- set source = "source_" ~ loop.index -%}
    {%- do sources.append(source) -%}
    {{ source }} as (

        select
            {{ keys | join(", ") }},
            {%- for name, expression in _scd2_named(one["columns"]).items() %}
            {{ expression }} as {{ name }},
            {%- endfor %}
            {{ one.get("valid_from", "valid_from") }} as _from,
            {{ _scd2_next_start(one.get("valid_to", "valid_to"), one.get("expire", "next_start")) }} as _to
        from {{ one["history"] }}

    ),

    {% endfor -%}
    moments as (
        {% for source in sources %}
        select {{ keys | join(", ") }}, _from as _at from {{ source }}
        union
        select {{ keys | join(", ") }}, _to from {{ source }} where _to is not null
        {%- if not loop.last %}
        union
        {%- endif %}
        {%- endfor %}

    ),

    spans as (

        select
            *,
            lead(_at) over (partition by {{ keys | join(", ") }} order by _at) as _until
        from moments

    )

    select
        {%- for name in keys %}
        spans.{{ name }},
        {%- endfor %}
        {%- for one in histories %}
        {%- set source = sources[loop.index0] %}
        {%- for name in _scd2_named(one["columns"]) %}
        {{ source }}.{{ name }},
        {%- endfor %}
        {%- endfor %}
        spans._at as valid_from,
        spans._until as valid_to,
        spans._until is null as is_current,
        cast(row_number() over (
            partition by {% for name in keys %}spans.{{ name }}{{ ", " if not loop.last }}{% endfor %}
            order by spans._at
        ) as int) as version
    from spans
    {%- for source in sources %}
    left join {{ source }}
        on {% for name in keys %}{{ source }}.{{ name }} = spans.{{ name }} and {% endfor -%}
        {{ scd2_valid_at("spans._at", source, "_from", "_to") }}
    {%- endfor %}
    where {% for source in sources -%}
        {{ source }}._from is not null
        {{- (" and " if how == "inner" else " or ") if not loop.last }}
    {%- endfor %}
{%- endmacro %}

{% macro _scd2_named(columns) %}
    {%- if columns is mapping -%}{{ return(columns) }}{%- endif -%}
    {%- set found = {} -%}
    {%- for name in columns -%}{%- do found.update({name: name}) -%}{%- endfor -%}
    {{ return(found) }}
{% endmacro %}
