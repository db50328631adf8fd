"""Attacked: the session of a Python model, which speaks Spark Connect and not only SQL.

A model that gets at the server by whatever PySpark offers (SQL, writers, the catalog, settings, the
client itself, other handles on the session) changes nothing that a reader of main sees. Not shown
here, as no guard in this process can see it: a client that the model makes by itself.
"""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

ORDERS = "{{ config(materialized='table') }} select explode(array({{ var('ids', '1, 2') }})) as id"
MODEL = """
def model(dbt, session):
    dbt.config(materialized="table")
    frame = dbt.ref("orders")
    name = "{schema}.orders"
    {attack}
    return frame
"""
WRITES = {
    "sql_branch": 'session.sql(f"insert into {name}.branch_main values (9)")',
    "sql_catalog": 'spark.sql(f"insert into lake.{name}.branch_main values (9)")',
    "sql_frame": 'session.sql("insert into {t} values (9)".replace("{t}", name + ".branch_main"))',
    "active": """
    from pyspark.sql import SparkSession
    SparkSession.active().sql(f"insert into {name}.branch_main values (9)")""",
    "of_a_frame": 'frame.sparkSession.sql(f"delete from {name}.branch_main where true")',
    "other_thread": """
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor() as pool:
        pool.submit(frame.writeTo(f"{name}.branch_main").append).result()""",
    "asked_for_columns": """
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL
    DataFrame(SQL(f"insert into {name}.branch_main values (9)"), session).schema""",
    "write_to": 'frame.writeTo(name + ".branch_main").append()',
    "write_to_main": 'frame.writeTo(name).option("branch", "main").overwritePartitions()',
    "create_or_replace": "frame.writeTo(name).using('iceberg').createOrReplace()",
    "save_as_table": 'frame.write.mode("overwrite").saveAsTable(f"lake.{name}")',
    "insert_into": 'frame.write.insertInto(f"{name}.branch_main", overwrite=True)',
    "save": 'frame.write.format("iceberg").mode("append").save(f"lake.{name}.branch_main")',
    "merge_into": """
    from pyspark.sql.functions import lit
    frame.mergeInto(name, lit(False)).whenNotMatched().insertAll().merge()""",
    "stream": """
    rates = session.readStream.format("rate").load().selectExpr("cast(value as int) as id")
    rates.writeStream.option("checkpointLocation", "/tmp/none").toTable(name)""",
    "client": """
    command = frame.write._write
    command.table_name, command.table_save_method = name + ".branch_main", "insert_into"
    session.client.execute_command(command.command(session.client))""",
    "stub": """
    request = session.client._execute_plan_request_with_metadata()
    request.plan.command.sql_command.input.sql.query = f"insert into {name}.branch_main values (9)"
    list(session.client._stub.ExecutePlan(request))""",
}
LEAVES = {
    "reset": 'session.sql("RESET")',
    "reset_key": 'session.sql("reset `spark.wap.branch`")',
    "unset": 'session.conf.unset("spark.wap.branch")',
    "set": 'session.conf.set("spark.wap.branch", "main")',
    "other_catalog": 'session.conf.set("spark.sql.catalog.other", "x.SparkCatalog")',
    "overwrite_mode": 'session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")',
    "current_catalog": 'session.catalog.setCurrentCatalog("spark_catalog")',
    "current_schema": 'session.catalog.setCurrentDatabase("default")',
    "clone": "session.cloneSession()",
    "copy": 'session.copyFromLocalToFs("/etc/hostname", "/tmp/none")',
}
HONEST = """
def model(dbt, session):
    dbt.config(materialized="table")
    from pyspark.sql.functions import col, udf
    from pyspark.sql.types import IntegerType

    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    orders = dbt.ref("orders").cache()
    orders.createOrReplaceTempView("kept")
    session.udf.register("twice", lambda n: 2 * n, IntegerType())
    plus = udf(lambda n: n + 1, IntegerType())
    assert session.catalog.tableExists("kept") and orders.count() == 3
    more = session.createDataFrame([(7,), (8,)], "id int").localCheckpoint()
    twice = session.sql("select twice(id) as id from kept where current_timezone() = 'Asia/Tokyo'")
    return twice.union(more.select(plus(col("id")).alias("id")))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("attacks", [WRITES, LEAVES], ids=["writes", "leaves"])
def test_a_python_model_changes_nothing_of_main(
    attacks: dict[str, str], make_project: MakeProject, reader: Reader
) -> None:
    project = make_project("attacks", {"models/orders.sql": ORDERS})
    project.dbt("build").succeeded()
    before = reader.table(project.schema, "orders")
    assert before.values("id") == [1, 2]
    code = {
        f"models/{name}.py": MODEL.replace("{schema}", project.schema).replace("{attack}", attack)
        for name, attack in attacks.items()
    }
    ended = project.write(code).dbt("build", ids="3").failed()
    assert {name for name, status in ended.statuses.items() if status == "error"} == set(attacks)
    assert ended.text.count("was not sent to Spark") >= len(attacks), ended.text
    look = reader.look(project.schema)
    assert {name: table.seen() for name, table in look.items()} == {"orders": before.seen()}


def test_what_a_model_needs_is_let_through(make_project: MakeProject, reader: Reader) -> None:
    files = {"models/orders.sql": ORDERS, "models/honest.py": HONEST}
    project = make_project("honest", files)
    project.dbt("build", ids="1, 2, 3").succeeded()
    assert reader.table(project.schema, "honest").values("id") == [2, 4, 6, 8, 9]


def test_a_refusal_names_the_line_and_the_way_out(
    make_project: MakeProject, reader: Reader
) -> None:
    attack = 'frame.writeTo("lake.elsewhere").append()'
    code = MODEL.replace("{schema}", "x").replace("{attack}", attack)
    project = make_project("told", {"models/orders.sql": ORDERS, "models/told.py": code})
    told = project.dbt("build").failed().text
    assert "models/told.py, line 5: The guard refused DataFrame.writeTo lake.elsewhere" in told
    assert "Return the frame from model()" in told
    assert reader.look(project.schema) == {}
