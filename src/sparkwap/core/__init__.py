"""The basis of all packages: names, errors, SQL text, retries, checkpoints of a run, dbt calls."""
