from sparkwap import cdc


def model(dbt, session):
    log = dbt.ref("raw_insurance__policies")
    return cdc.current(log, key=["policy_id"]).selectExpr(
        "cast(policy_id as bigint) as policy_id",
        "location_name as area",
        "state_code",
        "region_name",
        "business_type",
        "cast(insured_value as decimal(18, 2)) as insured_value",
        "cast(earthquake as boolean) as covers_earthquake",
        "cast(flood as boolean) as covers_flood",
        "cast(expiry_date as date) as expires_on",
        "row_hash",
        "loaded_at",
        "as_of",
    )
