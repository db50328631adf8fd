{#-
    A query of the bad rows of a raw table that no replay has corrected, with all columns of the
    table. Put it in brackets.

    raw  the raw table's relation
-#}
{% macro open_bad_rows(raw) -%}
    select bad.*
    from {{ raw }} as bad
    -- The load date is the table's partition, so only loads with bad rows are scanned.
    left anti join {{ raw }} as later
        on bad._load_date = later._load_date
            and bad._file_path = later._file_path
            and bad._row = later._row
            and bad._batch < later._batch
            and later._kind in ('row', 'bad')
    where bad._kind = 'bad'
{%- endmacro %}
