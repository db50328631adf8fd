{% snapshot payments_history %}
    {{
        config(
            unique_key='payment_id',
            strategy='timestamp',
            updated_at='updated_at'
        )
    }}
    select * from {{ ref('stg_payments') }}
{% endsnapshot %}
