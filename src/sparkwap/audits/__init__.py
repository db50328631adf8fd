"""Audits beside dbt's tests: metrics of a table and what is unusual in them."""
