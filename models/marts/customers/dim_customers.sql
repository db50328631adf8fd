{{ scd2_join('customer_id', [
    {'history': ref('hst_crm__customers'), 'columns': ['full_name', 'email', 'segment']},
    {'history': ref('hst_postal__addresses'),
     'columns': ['street', 'postal_code', 'city', 'country_code']},
]) }}
