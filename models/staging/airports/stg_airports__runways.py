from sparkwap import cdc


def model(dbt, session):
    log = dbt.ref("raw_airports__runways")
    ends = [
        expression.format(end)
        for end in ("le", "he")
        for expression in (
            "{0}_ident",
            "cast({0}_latitude_deg as double) as {0}_latitude_deg",
            "cast({0}_longitude_deg as double) as {0}_longitude_deg",
            "cast({0}_elevation_ft as int) as {0}_elevation_ft",
            "cast({0}_heading_degT as double) as {0}_heading_deg_true",
            "cast({0}_displaced_threshold_ft as int) as {0}_displaced_threshold_ft",
        )
    ]
    return cdc.current(log, key=["id"]).selectExpr(
        "cast(id as bigint) as runway_id",
        "cast(airport_ref as bigint) as airport_id",
        "airport_ident",
        "cast(length_ft as int) as length_ft",
        "cast(width_ft as int) as width_ft",
        "surface",
        "cast(lighted as boolean) as is_lighted",
        "cast(closed as boolean) as is_closed",
        *ends,
        *("row_hash", "loaded_at", "as_of"),
    )
