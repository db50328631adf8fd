{#-
    A raw table holds each landing file once, with as many rows as were read from it.

    data_tests:
      - files_add_up
-#}
{% test files_add_up(model) %}

select
    _file_path,
    count_if(_kind = 'file') as files,
    coalesce(sum(_file_rows), 0) as rows_read,
    count_if(_kind = 'row') as rows_held
from {{ model }}
group by _file_path
having files <> 1 or rows_read <> rows_held

{% endtest %}
