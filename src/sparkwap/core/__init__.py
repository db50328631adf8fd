"""What all else stands on: names, errors, SQL text, retries, the steps of a run, calls of dbt."""
