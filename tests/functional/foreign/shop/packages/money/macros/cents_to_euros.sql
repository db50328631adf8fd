{% macro cents_to_euros(column) %}cast({{ column }} / 100 as decimal(16, 2)){% endmacro %}
