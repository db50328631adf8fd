"""The net below the guard: whatever moves `main` past the gate is put back, and the run rejected.

The class attacked: a statement of a run that reaches a gated table of `main`, in any spelling, with
the guard switched off (`wap_guard: false`), so that the net alone has to find it. Each spelling has
a victim and a culprit of its own, so that one build tries them all. Readers look through PyIceberg,
and know nothing of sparkwap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.catalogs import FOLDED, KIND, VIEW
from helpers.lake import Look, Reader
from helpers.project import MakeProject, Outcome, Project
from helpers.statements import lines

TABLE = "{{ config(materialized='table') }} "
ROWS = {
    "branch": ["insert into <t>.branch_main values (99)"],
    "quoted": ["insert into lake.<s>.`<v>`.`branch_main` select 99"],
    "from_first": ["from (select 99L as id) insert into <t>.branch_main select id"],
    "immediate": [
        "execute immediate 'insert into lake.<s>.<half>' || '<rest>.branch_main values (99)'"
    ],
    "delete": ["delete from <t>.branch_main where id = 2"],
    "update": ["update <t>.branch_main set id = 99"],
}
CURRENT = {
    "property": ["alter table <t> set tblproperties ('current-snapshot-id' = '<old>')"],
    "rollback": ["call lake.system.rollback_to_snapshot('<s>.<v>', <old>)"],
    "current": ["call lake.system.set_current_snapshot(table => '<s>.<v>', snapshot_id => <old>)"],
    "forward": [
        "alter table <t> create branch x",
        "insert into <t>.branch_x values (99)",
        "call lake.system.fast_forward('<s>.<v>', 'main', 'x')",
    ],
}
PLACE = {
    "drop": ["drop table <t>"],
    "drop_hidden": ["drop table identifier('lake.<s>.' || '<half>' || '<rest>')"],
    "replace": ["create or replace table <t> (x string) using iceberg"],
    "replace_as": ["create or replace table <t> using iceberg as select 99 as id"],
    "rows_then_drop": ["insert into <t>.branch_main values (99)", "drop table <t>"],
    "drop_and_create": ["drop table <t>", "create table <t> using iceberg as select 99 as id"],
}
SHAPE = {
    "added": ["alter table <t> add column extra int"],
    "renamed": ["alter table <t> rename column id to code"],
    "gate_off": ["alter table <t> unset tblproperties ('write.wap.enabled')"],
    "receipt": ["alter table <t> drop tag `<receipt>`"],
}
STATEMENTS: Mapping[str, Sequence[str]] = {**ROWS, **CURRENT, **PLACE, **SHAPE}
UNMARKED: Mapping[str, Sequence[str]] = {
    "reset": ["reset", "insert into <t>.branch_main values (99)"],
    "other_run": [
        "set `spark.sql.iceberg.snapshot-property.wap_run`=x",
        "insert into <t>.branch_main values (99)",
    ],
    "cherry": ["call lake.system.cherrypick_snapshot('<s>.<v>', <side>)"],
}
PYTHON: Mapping[str, Sequence[str]] = {
    "sql": ["session.sql('insert into <t>.branch_main values (99)')"],
    "write_to": ["session.createDataFrame([(99,)], 'id long').writeTo('<t>.branch_main').append()"],
    "replace_to": ["session.createDataFrame([(99,)], 'id int').writeTo('<t>').createOrReplace()"],
    "built_name": ["session.sql('dr' + 'op table lake.' + '.'.join(['<s>', '<v>']))"],
    "call": ["session.sql(\"call lake.system.rollback_to_snapshot('<s>.<v>', <old>)\")"],
    "unset": [
        "session.conf.unset('spark.sql.iceberg.snapshot-property.wap_run')",
        "session.sql('insert into <t>.branch_main values (99)')",
    ],
    "reset_all": ["session.sql('RESET')", "session.sql('insert into <t>.branch_main values (99)')"],
}
OWN: Mapping[str, Sequence[str]] = {"own": ["insert into <t> values (cast(null as bigint))"]}
"""Written to the run's own branch, as all of its sessions write there."""
RENAME: Mapping[str, Sequence[str]] = {
    "rename": ["alter table <t> rename to <s>.renamed"],
    "hider": ["drop table if exists identifier('lake.<s>.' || 'nothing')"],
}
VICTIMS = [*STATEMENTS, *UNMARKED, *PYTHON, *OWN, *RENAME, "foreign", "hook"]
# The lines of the issue, which the guard's tests send with the guard on. A purge deletes files,
# which nobody puts back: docs/net.md. For the rename see `test_a_rename_and_a_later_hidden_name`.
LINES: Mapping[str, Sequence[str]] = {
    name: texts
    for name, texts in lines("<s>", "<V>", "bystander", "<old>", "<files>").items()
    if "purge" not in texts[0] and "rename" not in texts[0]
}

MOVING = {
    *("branch_0", "branch_1", "branch_2", "call_0", "call_1", "capital_letters_1", "drop_0"),
    *("execute_immediate_2", "session_0", "session_1", "use_3", "use_4", "use_5"),
    *(f"snapshot_by_a_property_{number}" for number in range(3)),
}
"""The lines that move `main` before the net puts it back; the others fail, or write to the run's
own branch."""
if KIND == "cluster":
    MOVING.remove("call_0")  # it adds files by Hadoop's file systems, which do not know the store


def victim_of(name: str) -> str:
    """The table that is attacked; those of the lines have names with a capital letter."""
    return f"Prey_{name}" if name in LINES and not FOLDED else f"prey_{name}"


def files() -> dict[str, str]:
    """A victim for each way, and a model that attacks it when the environment says so."""
    found = {
        f"models/victims/prey_{name}.sql": TABLE + "select id from range(1, 4)" for name in VICTIMS
    }
    found |= {
        f"models/victims/prey_{name}.sql": f"""
            {{{{ config(materialized='table', alias='{victim_of(name)}') }}}}
            select cast(id as int) as id from range(1, 4)
        """
        for name in LINES
    }
    found |= {
        f"models/culprits/by_{name}.sql": f"""
            {{{{ config(
                materialized='{VIEW}',
                pre_hook=fromjson(env_var('ATTACK', '{{}}')).get('{name}', []),
            ) }}}}
            select 1 as id
        """
        for name in (*STATEMENTS, *UNMARKED, *OWN, *RENAME, *LINES)
    }
    code = """
        def model(dbt, session):
            import json
            import os
            dbt.config(materialized="table")
            for code in json.loads(os.environ.get("ATTACK", "{{}}")).get("{name}", []):
                exec(code)
            return session.createDataFrame([(1,)], "id int")
    """
    found |= {
        f"models/python/by_{name}.py": code.replace("{name}", name).replace("{{}}", "{}")
        for name in (*PYTHON, "foreign")
    }
    found["models/culprits/by_hider.sql"] += "-- {{ ref('by_rename') }}"
    tested = "models: [{name: prey_own, columns: [{name: id, data_tests: [not_null]}]}]"
    found["models/victims/properties.yml"] = tested
    return {**found, "models/bystander.sql": f"{TABLE}select 1 as id"}


@dataclass
class Den:
    """The project, and what a reader of main saw before the attack."""

    project: Project
    reader: Reader
    before: dict[str, Look] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    files: Path = Path()

    @property
    def schema(self) -> str:
        return self.project.schema

    def filled(self, name: str, text: str) -> str:
        """A statement with its victim's names and snapshots in it."""
        victim = victim_of(name)
        document = self.reader.metadata(self.schema, victim)
        facts = {
            "t": f"lake.{self.schema}.{victim}",
            "s": self.schema,
            "V": victim,
            "v": victim.lower(),
            "half": victim[:4],
            "rest": victim[4:],
            "old": document["snapshots"][0]["snapshot-id"],
            "side": document["snapshots"][-2]["snapshot-id"],
            "files": self.files,
            "receipt": next(one for one in document["refs"] if one.startswith("wap_pub_")),
        }
        for key, value in facts.items():
            text = text.replace(f"<{key}>", str(value))
        return text

    def attack(self, ways: Mapping[str, Sequence[str]], *select: str, **variables: Any) -> Outcome:
        """A build whose models attack, each by its way."""
        filled = {name: [self.filled(name, one) for one in ways[name]] for name in ways}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ATTACK", json.dumps(filled))
            self.before = self.reader.look(self.schema)
            self.documents = {one: self.reader.metadata(self.schema, one) for one in self.before}
            chosen = ("--select", *(select or [f"by_{name}" for name in ways]))
            return self.project.dbt("build", *chosen, wap_guard=False, **variables)

    def unharmed(self, done: Outcome, name: str, by: str | None = None) -> None:
        """Readers see what they saw, the run is rejected, and its summary says why."""
        by = by or f"by_{name}"
        assert done.verdict(by) == "rejected", done.text
        # Iceberg before 1.12 refuses a named branch in a session that writes to another one.
        if "Cannot write to both branch and WAP branch" not in done.reason(by):
            moved = f"{self.schema}.prey_{name} was moved past the gate"
            assert moved in done.reason(by), done.text
            assert "until it was put back" in done.reason(by), done.text
        self.as_before(victim_of(name))

    def as_before(self, victim: str) -> None:
        """A table has the rows, columns, properties and refs that it had."""
        now, before = self.reader.look(self.schema)[victim], self.before[victim]
        assert now.seen() == before.seen()
        document, former = self.reader.metadata(self.schema, victim), self.documents[victim]
        # One that came in addition may stay: readers see nothing of it.
        properties = document["properties"]
        assert {one: properties.get(one) for one in former["properties"]} == former["properties"]
        assert properties["write.wap.enabled"] == "true"
        refs = document["refs"]
        assert {one: refs.get(one) for one in former["refs"]} == former["refs"]
        # A branch is nobody's `main`; a tag could be a receipt.
        assert {refs[one]["type"] for one in set(refs) - set(former["refs"])} <= {"branch"}


@pytest.fixture(scope="module")
def den(make_project: MakeProject, reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Den:
    project = make_project("den", files())
    project.dbt("build").succeeded()
    den = Den(project, reader, files=tmp_path_factory.mktemp("parquet"))
    rows = pa.table({"id": pa.array([99], pa.int32())})
    pq.write_table(rows, den.files / "rows.parquet")
    for name in LINES:
        reader.catalog.load_table((project.schema, victim_of(name))).append(rows)
    for name in VICTIMS:
        # A second snapshot, for attacks that go back to the first.
        table = reader.catalog.load_table((project.schema, f"prey_{name}"))
        table.append(pa.table({"id": pa.array([4], pa.int64())}))
    # One that never came to main.
    table = reader.catalog.load_table((project.schema, "prey_cherry"))
    main = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(main, "x").commit()
    table.append(pa.table({"id": pa.array([99], pa.int64())}), branch="x")
    table.append(pa.table({"id": pa.array([5], pa.int64())}))
    return den


def attacked(ways: Mapping[str, Sequence[str]]) -> Callable[[Den], tuple[Den, Outcome]]:
    @pytest.fixture(scope="module")
    def once(den: Den) -> tuple[Den, Outcome]:
        done = den.attack(ways).failed()
        assert "readers of main see the state before this run again" in done.text, done.text
        assert {*den.reader.look(den.schema)} == {*den.before}
        den.as_before("bystander")
        return Den(den.project, den.reader, den.before, den.documents), done

    return once


by_statements = attacked(STATEMENTS)
by_unmarked = attacked(UNMARKED)
by_python = attacked(PYTHON)
by_lines = attacked(LINES)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_of_a_hook(by_statements: tuple[Den, Outcome], name: str) -> None:
    den, done = by_statements
    den.unharmed(done, name)


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_the_issue(by_lines: tuple[Den, Outcome], name: str) -> None:
    den, done = by_lines
    den.as_before(victim_of(name))
    told = f"{den.schema}.{victim_of(name)} was moved past the gate" in done.text
    assert told == (name in MOVING), done.text


def test_what_readers_saw_meanwhile_is_told(by_statements: tuple[Den, Outcome]) -> None:
    den, done = by_statements
    told = re.fullmatch(
        rf"{den.schema}.prey_branch was moved past the gate: main \(snapshot (\d+) on it has this"
        r" run's id\); readers saw snapshot (\d+) of 5 rows for [\d.]+ s, until it was put back",
        done.verdicts[f"{den.schema}.by_branch"][1],
    )
    assert told is not None, done.text
    assert told[1] == told[2]


@pytest.mark.parametrize("name", UNMARKED)
def test_rows_without_the_run_s_id(by_unmarked: tuple[Den, Outcome], name: str) -> None:
    den, done = by_unmarked
    den.unharmed(done, name)


@pytest.mark.smoke
@pytest.mark.parametrize("name", PYTHON)
def test_a_python_model(by_python: tuple[Den, Outcome], name: str) -> None:
    den, done = by_python
    den.unharmed(done, name)


def test_a_hook_that_no_node_owns(den: Den) -> None:
    settings: dict[str, Any] = json.loads((den.project.folder / "dbt_project.yml").read_text())
    statement = den.filled("hook", "insert into <t>.branch_main values (99)")
    den.project.write({"dbt_project.yml": json.dumps({**settings, "on-run-start": [statement]})})
    try:
        done = den.attack({}, "bystander").failed()
    finally:
        den.project.write({"dbt_project.yml": json.dumps(settings)})
    den.unharmed(done, "hook", by="prey_hook")
    assert done.verdict("bystander") == "held"


def test_rows_on_the_run_s_own_branch_are_not_published(den: Den) -> None:
    done = den.attack(OWN, wap_branch="mine", wap_publish="never")
    again = den.project.dbt("build", "--select", "bystander", wap_branch="mine")
    den.as_before("prey_own")
    published = den.project.operation("wap_publish", branch="mine")
    assert den.reader.table(den.schema, "prey_own").values("id") == [1, 2, 3, 4], (
        f"{done.text}\n{again.text}\n{published.text}"
    )


def test_a_rename_and_a_later_hidden_name(den: Den) -> None:
    done = den.attack(RENAME).failed()
    look = den.reader.look(den.schema)
    assert "prey_rename" in look, done.text
    assert "renamed" not in look
    den.unharmed(done, "rename")


class TestForeignWriters:
    """What others have done is never undone, however busy the run was."""

    def test_their_rows_beside_a_run_that_does_no_harm(self, den: Den) -> None:
        done = den.attack({"foreign": [append(den, 8)]}).succeeded()
        assert done.verdict("by_foreign") == "published"
        assert 8 in den.reader.table(den.schema, "prey_foreign").values("id")

    def test_their_rows_below_ours_stay(self, den: Den) -> None:
        ours = "session.sql('insert into <t>.branch_main values (99)')"
        done = den.attack({"foreign": [append(den, 9), ours]}).failed()
        assert "until it was put back" in done.reason("by_foreign"), done.text
        ids = den.reader.table(den.schema, "prey_foreign").values("id")
        assert 9 in ids
        assert 99 not in ids

    def test_their_rows_on_ours_stop_the_net(self, den: Den) -> None:
        ours = "session.sql('insert into <t>.branch_main values (99)')"
        done = den.attack({"foreign": [ours, append(den, 10)]}).failed()
        assert "it was not put back" in done.reason("by_foreign"), done.text
        left = f"but readers of main see what the run has done to {den.schema}.prey_foreign"
        assert left in done.text, done.text
        assert {10, 99} <= set(den.reader.table(den.schema, "prey_foreign").values("id"))


def append(den: Den, number: int) -> str:
    """Code by which another engine adds a row to `main`."""
    return (
        "import pyarrow as pa\n"
        "from pyiceberg.catalog import load_catalog\n"
        f"catalog = load_catalog('lake', **{dict(den.reader.catalog.properties)!r})\n"
        f"table = catalog.load_table(({den.schema!r}, 'prey_foreign'))\n"
        f"table.append(pa.table({{'id': pa.array([{number}], pa.int64())}}))\n"
    )
