from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    return landing.model(dbt, session)
