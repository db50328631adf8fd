{#-
    A raw table has each landing file once, with all its rows: as many rows (good, bad and skipped)
    as were counted in the file, without Spark, before it was read.

    data_tests:
      - files_add_up
-#}
{% test files_add_up(model) %}

select
    _file_path,
    count_if(_kind = 'file') as files,
    coalesce(sum(_file_rows), 0) as rows_read,
    -- A position may have two rows: a change of keys, or a bad row and its replay.
    count(distinct if(_kind = 'file', null, _row)) as rows_held
from {{ model }}
group by _file_path
having files <> 1 or rows_read <> rows_held

{% endtest %}
