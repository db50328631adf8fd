"""Names of tables as the catalog has them, to the letter.

The class attacked: a name with capital letters is another name to the catalog and the same one to
some reader, so that rows are built, tested and read under different names.
"""

from __future__ import annotations

import pytest
from helpers.lake import Reader
from helpers.project import MakeProject

GOOD = "{{ config(materialized='table') }} select id from range(1, 4)"
TESTED = """
    models:
      - name: {name}
        columns: [{{name: id, data_tests: [not_null]}}]
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    "other",
    [
        {"models/twin_2.sql": GOOD.replace("table'", "table', alias='Twin'")},
        {"models/twin_2.sql": GOOD.replace("table'", "view', alias='TWIN'")},
        {"seeds/tWIN.csv": "id\n\n"},
    ],
    ids=["table", "view", "seed"],
)
def test_two_names_that_differ_in_case_only_are_refused(
    make_project: MakeProject, reader: Reader, other: dict[str, str]
) -> None:
    project = make_project("twins", {"models/twin.sql": GOOD, **other})
    done = project.dbt("build").failed()
    assert "differ in case only" in done.text, done.text
    assert reader.look(project.schema) == {}


def test_a_name_that_stands_in_the_lake_in_another_case_is_refused(
    make_project: MakeProject, reader: Reader
) -> None:
    """Of another project, say, or of this one before a model was renamed."""
    other = make_project("before", {"models/Twin.sql": GOOD})
    other.dbt("build").succeeded()
    before = reader.look(other.schema)
    other.clear("models").write({"models/twin.sql": GOOD.replace("range(1, 4)", "range(9)")})
    for command in ("run", "build"):
        done = other.dbt(command).failed()
        assert "Twin (which is in the lake)" in done.text, done.text
        assert reader.look(other.schema) == before
    other.write({"models/twin.sql": GOOD.replace("table'", "table', alias='twin_2'")})
    other.dbt("build").succeeded()
    assert set(reader.look(other.schema)) == {"Twin", "twin_2"}


def test_two_branches_whose_names_differ_in_case_only(
    make_project: MakeProject, reader: Reader
) -> None:
    """Neither build can know of the other; the second publish can."""
    project = make_project("branches", {"models/twin.sql": GOOD})
    project.dbt("build", wap_branch="lower", wap_publish="never").succeeded()
    project.clear("models").write({"models/Twin.sql": GOOD})
    project.dbt("build", wap_branch="upper", wap_publish="never").succeeded()
    project.operation("wap_publish", branch="upper").succeeded()
    project.clear("models").write({"models/twin.sql": GOOD})
    done = project.operation("wap_publish", branch="lower").failed()
    assert f"found {project.schema}.Twin" in done.text, done.text
    assert set(reader.look(project.schema)) == {"Twin"}


def test_a_name_with_capital_letters_is_gated_as_any_other(
    make_project: MakeProject, reader: Reader
) -> None:
    files = {"models/Orders.sql": GOOD, "models/m.yml": TESTED.format(name="Orders")}
    project = make_project("capitals", files)
    project.dbt("build").succeeded()
    assert reader.look(project.schema)["Orders"].values("id") == [1, 2, 3]
    bad = GOOD.replace("select id", "select nullif(id, 2) as id")
    hook = "insert into {{ this.schema }}.ORDERS values (null)"
    for text in (bad, GOOD.replace("table'", f'table\', post_hook="{hook}"')):
        project.write({"models/Orders.sql": text})
        project.dbt("build").failed()
        assert reader.look(project.schema)["Orders"].values("id") == [1, 2, 3]
