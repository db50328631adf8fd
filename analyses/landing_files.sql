-- Which landing files were read, and how many of their rows cannot be used.
select
    _load_date as load_date,
    _file_path as file_path,
    max(_file_bytes) as byte_count,
    max(_file_rows) as row_count,
    count_if(_kind = 'bad') as bad_rows
from {{ ref('raw_insurance__policies') }}
group by _load_date, _file_path
order by load_date, file_path
