from sparkwap import landing


def model(dbt, session):
    dbt.config(materialized="incremental")
    entry, drop = dbt.config.meta_get("landing"), dbt.config.meta_get("drop")
    return landing.read(dbt, session, entry, drop)
