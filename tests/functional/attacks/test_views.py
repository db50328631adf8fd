"""Attack: a view whose text says where its rows come from in a way that a rewriting may not see.

The class: any spelling of a name that Spark resolves when the view is read, after the publish. What
is published reads published tables; what cannot be proven to do so is rejected.
"""

import pytest
from helpers.lake import Reader, SparkReader
from helpers.project import MakeProject, Project

# The table is new, so that it stands in the side schema when the view is built.
TABLE = "{{ config(materialized='table') }} select id, '/a' as path from range(3)"
SAME = {
    "raw_string": r"select id, replace(path, r'\', '/') as path from {{ ref('t') }}",
    "comments": "select id, path from {{ target.schema }}__{{ var('wap_branch') }} /* /* ' */ */"
    " -- .\n . t",
    "identifier": "select id, path from identifier('{{ ref('t') }}')",
    "literal": "select id, path from {{ ref('t') }} where '{{ ref('t') }}' not like '%\\_\\_%'",
}
OTHER = {
    "escaped": r"select * from identifier('{{ target.schema }}\u005f_{{ var('wap_branch') }}.t')",
    "put_together": "select * from identifier('{{ target.schema }}_'"
    " || '_{{ var('wap_branch') }}.t')",
    "in_parts": "select * from identifier('{{ target.schema }}_' '_{{ var('wap_branch') }}.t')",
}


@pytest.fixture(scope="module")
def project(make_project: MakeProject) -> Project:
    files = {
        f"models/{name}.sql": f"{{{{ config(materialized='view') }}}}\n-- {{{{ ref('t') }}}}\n{sql}"
        for name, sql in {**SAME, **OTHER}.items()
    }
    return make_project("views", {"models/t.sql": TABLE, **files})


@pytest.mark.smoke
def test_readers_of_a_view_see_published_rows_alone(
    project: Project, reader: Reader, spark: SparkReader
) -> None:
    branch = f"pr_{project.schema}"
    built = project.dbt("build", wap_branch=branch, wap_publish="lineage").failed()
    assert {name: built.verdict(name) for name in OTHER} == dict.fromkeys(OTHER, "rejected")
    assert set(reader.look(project.schema)) == {"t", *SAME}
    for name in OTHER:
        assert "ref(), source() or schema.table" in built.reason(name)
    # On the same branch there are rows again that no test has passed: nobody sees them.
    project.write({"models/t.sql": TABLE.replace("'/a'", "null, 1 as more")})
    tests = "models: [{name: t, columns: [{name: path, data_tests: [not_null]}]}]"
    project.write({"models/t.yml": tests})
    again = project.dbt("build", "--select", "t", wap_branch=branch, wap_publish="lineage").failed()
    assert again.verdict("t") == "rejected"
    for name in SAME:
        rows = spark.rows(f"select id, path from {project.schema}.{name}")
        assert rows == [(0, "/a"), (1, "/a"), (2, "/a")], name
