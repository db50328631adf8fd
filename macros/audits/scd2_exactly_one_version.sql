{#-
    For each row of a fact, exactly one version of its key is valid at its moment.

    data_tests:
      - scd2_exactly_one_version:
          arguments:
            history: ref('dim_products')
            key: product_id
            moment: ordered_at

    args:
        history: the table with the versions
        key: the key column, or a list; of the same name in both
        moment: SQL over the fact's columns: the date or time to look up
        expire: `day_before` if the end of a version still belongs to it
        where: a condition on the rows of the fact; all rows by default
-#}
{% test scd2_exactly_one_version(
    model, history, key, moment, valid_from='dbt_valid_from', valid_to='dbt_valid_to',
    expire='next_start', where=none
) %}

with facts as (

    select
        {{ _scd2_keys(key) }},
        {{ moment }} as moment,
        monotonically_increasing_id() as fact
    from {{ model }}
    {%- if where %}
    where {{ where }}
    {%- endif %}

),

versions as (

    select
        {{ _scd2_keys(key) }},
        {{ valid_from }} as began,
        {{ _scd2_next_start(valid_to, expire) }} as ended
    from {{ history }}

)

select
    fact,
    {% for name in ([key] if key is string else key) -%}
    any_value(facts.{{ name }}) as {{ name }},
    {% endfor -%}
    any_value(facts.moment) as moment,
    count(versions.began) as versions_found
from facts
left join versions
    on {% for name in ([key] if key is string else key) -%}
    facts.{{ name }} = versions.{{ name }} and {% endfor -%}
    versions.began <= facts.moment
    and (versions.ended is null or facts.moment < versions.ended)
group by fact
having count(versions.began) <> 1

{% endtest %}
