from sparkwap import cdc


def model(dbt, session):
    dbt.config(materialized="incremental")
    return cdc.model(dbt, session, dbt.ref("raw_postal__addresses"))
