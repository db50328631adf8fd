from sparkwap import cdc


def model(dbt, session):
    log = dbt.ref("raw_airports__airport_frequencies")
    return cdc.current(log, key=["id"]).selectExpr(
        "cast(id as bigint) as frequency_id",
        "cast(airport_ref as bigint) as airport_id",
        "airport_ident",
        "type as frequency_type",
        "description",
        "cast(frequency_mhz as decimal(12, 4)) as frequency_mhz",
        "row_hash",
        "loaded_at",
        "as_of",
    )
