{{ config(materialized='view') }}

{% for entity in ['runways', 'airport_frequencies'] %}
select
    '{{ entity }}' as entity,
    _file_path as file_path,
    _load as load_kind,
    _file_sha256 as sha256,
    _file_bytes as byte_count,
    _file_rows as row_count,
    _load_date as load_date
from {{ ref('raw_airports__' ~ entity) }}
where _kind = 'file'
{{ 'union all' if not loop.last }}
{% endfor %}
