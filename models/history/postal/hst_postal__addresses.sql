{{ config(unique_key='customer_id') }}

{{ change_events(ref('raw_postal__addresses'), partial=false, columns={
    'customer_id': 'cast(customer_id as bigint)',
    'street': 'street',
    'postal_code': 'postal_code',
    'city': 'city',
    'country_code': 'country_code',
}) }}
