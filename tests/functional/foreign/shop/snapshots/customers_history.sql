{% snapshot customers_history %}
{{ config(unique_key='customer_id', strategy='check', check_cols=['first_name'], file_format='iceberg') }}
select customer_id, first_name from {{ ref('stg_customers') }}
{% endsnapshot %}
