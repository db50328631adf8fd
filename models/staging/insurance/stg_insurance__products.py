from sparkwap import cdc


def model(dbt, session):
    log = dbt.ref("raw_insurance__products")
    return cdc.current(log, key=["product_id"]).selectExpr(
        "product_id",
        "product_name",
        "category",
        "cast(price as decimal(18, 2)) as price",
        "row_hash",
        "loaded_at",
        "as_of",
    )
