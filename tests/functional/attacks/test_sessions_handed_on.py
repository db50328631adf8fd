"""Attacked: the node that comes next in a session which another node has used.

Whatever a node leaves in its sessions (settings, temporary views and functions, variables, what is
current, what is cached), by a hook, by its SQL or by its Python, the next node finds them as they
were opened. One thread, so that the next node would have the same session.
"""

from __future__ import annotations

from helpers.lake import Reader
from helpers.project import MakeProject

HOOK = """
{{{{ config(materialized='table', pre_hook={0}) }}}}
-- depends_on: {{{{ ref('BEFORE') }}}}
select 1 as id
"""
PYTHON = """
def model(dbt, session):
    dbt.config(materialized="table", pre_hook={1})
    dbt.ref("BEFORE")
    frame = session.sql("select 1 as id")
    {0}
    return frame
"""
LEAVES = {
    "zone.sql": HOOK.format("\"set time zone 'Asia/Tokyo'\""),
    "zone_by_key.sql": HOOK.format('"SET `spark.sql.session.timeZone` = Asia/Tokyo"'),
    "zone_in_header.sql": """
        {{ config(materialized='table', sql_header="set time zone 'Asia/Tokyo';") }}
        -- depends_on: {{ ref('BEFORE') }}
        select 1 as id
    """,
    "ansi.sql": HOOK.format('"set spark.sql.ansi.enabled = false"'),
    "views.sql": HOOK.format(
        '["create temporary view stolen as select 1 as id", '
        '"create or replace temp view stolen as select 2 as id"]'
    ),
    "cached.sql": HOOK.format('"cache table stolen as select 1 as id"'),
    "variable.sql": HOOK.format('"declare or replace variable stolen int default 1"'),
    # The hook runs in the node's session for SQL, what is in the model in its other one.
    "py_hook.py": PYTHON.format("", "\"set time zone 'Asia/Tokyo'\""),
    "py_conf.py": PYTHON.format(
        'session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")', "[]"
    ),
    "py_unset.py": PYTHON.format('session.conf.unset("spark.sql.session.timeZone")', "[]"),
    "py_sql.py": PYTHON.format("session.sql(\"set time zone 'Asia/Tokyo'\")", "[]"),
    "py_ansi.py": PYTHON.format('spark.conf.set("spark.sql.ansi.enabled", "false")', "[]"),
    "py_view.py": PYTHON.format('frame.createOrReplaceTempView("stolen")', "[]"),
    "py_view_sql.py": PYTHON.format(
        'session.sql("create temporary view stolen as select 1 as id")', "[]"
    ),
    "py_function.py": PYTHON.format('session.udf.register("upper", lambda text: "stolen")', "[]"),
    "py_cache.py": PYTHON.format('frame.cache().createTempView("stolen")', "[]"),
}
SEEN = """
    select current_timezone() as zone, current_catalog() as catalog, current_schema() as schema,
        try_cast('x' as int) is null and upper('x') = 'X' as usual
"""
LOOKS_SQL = (
    """
    {{ config(materialized='table', pre_hook="declare variable stolen int default 0") }}
    -- depends_on: {{ ref('BEFORE') }}
    """
    + SEEN
    + """,
        "{% if execute %}{{ run_query('show views in default').rows | list | length }}
        {{ run_query('show user functions').rows | list | length }}
        {{ run_query('set spark.sql.ansi.enabled').rows[0][1] }}{% endif %}" as others
    """
)
LOOKS_PYTHON = f'''
def model(dbt, session):
    dbt.config(materialized="table")
    dbt.ref("BEFORE")
    seen = session.sql("""{SEEN}""").collect()[0].asDict()
    views = session.sql("show views in default").count()
    ansi = session.conf.get("spark.sql.ansi.enabled")
    functions = session.sql("show user functions").count()
    others = f"{{views}} {{functions}} {{ansi}}"
    return session.createDataFrame([{{**seen, "others": others}}])
'''


def test_each_node_finds_its_sessions_as_they_were_opened(
    make_project: MakeProject, reader: Reader
) -> None:
    files, before = (
        {"models/start.sql": "{{ config(materialized='table') }} select 1 as id"},
        "start",
    )
    for step in ("fresh.sql", *LEAVES):
        name = step.partition(".")[0]
        nodes = [(f"sql_after_{name}.sql", LOOKS_SQL), (f"py_after_{name}.py", LOOKS_PYTHON)]
        for file, code in [*([(step, LEAVES[step])] if step in LEAVES else []), *nodes]:
            files[f"models/{file}"] = code.replace("BEFORE", before)
            before = file.partition(".")[0]
    parameters = {"spark.sql.session.timeZone": "Europe/Berlin"}
    output = {"threads": 1, "server_side_parameters": parameters}
    project = make_project("handed", files, output=output)
    project.dbt("build").succeeded()
    look = reader.look(project.schema)
    for kind in ("sql", "py"):
        fresh = look[f"{kind}_after_fresh"].rows
        assert fresh[0]["zone"] == "Europe/Berlin"
        found = {name: look[name].rows for name in look if name.startswith(f"{kind}_after_")}
        assert len(found) == len(LEAVES) + 1
        assert {name: rows for name, rows in found.items() if rows != fresh} == {}
