{{ config(unique_key='customer_id') }}

{{ change_events(ref('raw_crm__customers'), columns={
    'customer_id': 'cast(customer_id as bigint)',
    'full_name': 'full_name',
    'email': 'email',
    'segment': 'segment',
}) }}
