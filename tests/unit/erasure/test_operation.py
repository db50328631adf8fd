"""The whole operation without Spark, while others write to the lake."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.bench import BRANCH, SIDE, Bench, on_branch
from helpers.people import PEOPLE, bytes_of, files
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile

from sparkwap.catalog import LedgerRows, RollbackRefused
from sparkwap.catalog import lease as leasing
from sparkwap.catalog.branches import REWRITTEN_BY
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.erasure import Erase, NodeColumns, operation
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.operation import Erasure, ProofFailed
from sparkwap.ledger import rollback_plan
from sparkwap.maintenance import expiry, file_references, live_manifests
from sparkwap.publish.lake import Lake

PEOPLE_TABLE = ("s", "people")
MARKS = {
    "customer_id": {"subject": "customer"},
    "email": {"personal": "customer"},
}
ASKED = {"subject": "customer", "keys": ["42"], "confirm": True}
RUN = "1a2b3c4d-0000-4000-8000-000000000000"


class Engine:
    """Replaces Spark: counts, deletes and compares the subject's rows."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.statements: list[str] = []

    def __call__(self, statement: str) -> Sequence[Sequence[Any]]:
        self.statements.append(statement)
        table = self.lake.catalog.load_table(PEOPLE_TABLE)
        if found := re.match(r"delete from `s`.`people`.`branch_(\w+)`", statement):
            table.delete("customer_id = 42", branch=found[1])
            return []
        ref = re.search(r"version as of '(\w+)'", statement)
        assert ref is not None
        snapshot = table.metadata.refs[ref[1]].snapshot_id
        keys = table.scan(snapshot_id=snapshot).to_arrow()["customer_id"].to_pylist()
        if "count_if" in statement:
            return [(len(keys), keys.count(42), 0)]
        stay = [key for key in keys if key != 42] if "where not" in statement else keys
        return [(len(stay), sum(stay), 0)]


@pytest.fixture
def engine(lake: Lake) -> Engine:
    return Engine(lake)


@pytest.fixture
def erasure(lake: Lake, engine: Engine, tmp_path: Path) -> Erasure:
    node = NodeColumns("model.people", PEOPLE_TABLE, "model", MARKS)
    return Erasure(
        lake, engine, run_id=RUN, nodes=lambda: [node], project="shop", target_name="t",
        folder=tmp_path / "target",
    )  # fmt: skip


def write(lake: Lake, key: int, email: str) -> None:
    """Add a row to ``main``, as another writer."""
    row = pa.table({"customer_id": [key], "email": [email], "city": ["Rome"]}, PEOPLE.schema)
    lake.catalog.load_table(PEOPLE_TABLE).append(row)


def left(tmp_path: Path, text: str) -> list[str]:
    """Return the data files that hold a text."""
    return [
        path
        for path in files(tmp_path)
        if path.endswith(".parquet") and text in repr(pq.read_table(path).to_pylist())
    ]


def keys(lake: Lake) -> list[int]:
    rows = lake.catalog.load_table(PEOPLE_TABLE).scan().to_arrow()
    return sorted(rows["customer_id"].to_pylist())


def interfere(patch: pytest.MonkeyPatch, lake: Lake, step: str, times: int = 1) -> list[str]:
    """Let another writer add a row of the subject when a step is reached."""
    reached: list[str] = []

    def at(_: Any, now: str) -> None:
        if now == step and len(reached) < times:
            reached.append(now)
            write(lake, 42, f"anna.{len(reached)}@new.example")

    patch.setattr(operation.Erasure, "_at", at)
    return reached


def test_an_erasure_without_other_writers(
    lake: Lake, erasure: Erasure, engine: Engine, tmp_path: Path
) -> None:
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43]
    assert left(tmp_path, "anna.berg@") == []
    assert not any("anna" in sql or "42" in re.sub("[0-9a-f]{16,}", "", sql)
                   for sql in engine.statements)  # fmt: skip


def test_no_erasure_beside_a_maintenance(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def maintaining() -> leasing.Holding:
        return leasing.hold(
            lake.leases, run_id=str(uuid.uuid4()), branch="wap_5a5a5a5a",
            command=leasing.MAINTENANCE,
        )  # fmt: skip

    holding = maintaining()
    with pytest.raises(SparkwapError, match=r"A maintenance is at work.*Nothing was changed"):
        erasure.call(Erase.of(ASKED))
    assert keys(lake) == [41, 42, 43]
    holding.release()
    begun: list[leasing.Holding] = []

    def at(_: Any, now: str) -> None:
        if now == "rewritten" and not begun:
            begun.append(maintaining())

    monkeypatch.setattr(operation.Erasure, "_at", at)
    with pytest.raises(SparkwapError, match=r"(?s)may still write former rows.*again"):
        erasure.call(Erase.of(ASKED))
    begun[0].release()
    # What a maintenance that died has left holds nothing.
    lake.branches.clone(PEOPLE_TABLE, "s__wap_5a5a5a5a", {REWRITTEN_BY: "x"})
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert left(tmp_path, "anna.berg@") == []
    assert not lake.side_schemas()


@pytest.mark.parametrize("known", [True, False])
def test_the_report_names_servers_outside_the_lake(
    lake: Lake, engine: Engine, tmp_path: Path, known: bool
) -> None:
    log = tmp_path / "server" / "server.log"
    log.parent.mkdir()
    log.write_text("cannot cast anna.berg@mail.example to int")
    node = NodeColumns("model.people", PEOPLE_TABLE, "model", MARKS)
    erasure = Erasure(
        lake, engine, run_id=RUN, nodes=lambda: [node], project="shop", target_name="t",
        folder=tmp_path / "target", of_server=[log.parent] if known else None,
    )  # fmt: skip
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert (f"  {log}" in lines) is known
    others = [line for line in lines if line.startswith("Not searched: the ")]
    assert [line.partition(" of the ")[2][:12] for line in others] == [
        *([] if known else ["Spark server"])
    ]


@pytest.mark.parametrize("step", ["noted", "rewritten", "published"])
def test_new_rows_of_the_subject_are_erased_too(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    reached = interfere(monkeypatch, lake, step)
    lines = erasure.call(Erase.of(ASKED))
    assert reached == [step]
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43]
    assert left(tmp_path, "anna.") == []


def test_new_rows_of_others_stay(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def at(_: Any, step: str) -> None:
        if step not in steps:
            steps.append(step)
            write(lake, 50 + len(steps), "somebody@else.example")

    monkeypatch.setattr(operation.Erasure, "_at", at)
    lines = erasure.call(Erase.of(ASKED))
    assert steps == ["noted", "rewritten", "published", "expired", "deleted"]
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43, 51, 52, 53, 54, 55]


@pytest.mark.long
def test_a_writer_that_never_ends_stops_the_erasure(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    interfere(monkeypatch, lake, "rewritten", times=99)
    with pytest.raises(SparkwapError, match="others wrote to the tables") as refused:
        erasure.call(Erase.of(ASKED))
    assert "Run the same command again, with the same arguments" in str(refused.value)
    assert 42 in keys(lake)
    monkeypatch.undo()
    erasure.call(Erase.of(ASKED))
    assert keys(lake) == [41, 43]


@pytest.mark.parametrize("step", ["expired", "deleted"])
def test_rows_written_after_the_rewrite_fail_the_proof(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    interfere(monkeypatch, lake, step)
    with pytest.raises(ProofFailed, match="NOT PROVEN"):
        erasure.call(Erase.of(ASKED))
    erasure.call(Erase.of(ASKED))
    assert keys(lake) == [41, 43]
    assert left(tmp_path, "anna.") == []


def test_rows_written_during_the_proof_fail_the_proof(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = operation.LakeFiles.scan
    scans: list[int] = []

    def reading(self: Any, scanner: Any, paths: Sequence[str]) -> Any:
        scans.append(len(paths))
        if len(scans) == 2:  # the first scan belongs to the look
            write(lake, 42, "anna.late@new.example")
        return scan(self, scanner, paths)

    monkeypatch.setattr(operation.LakeFiles, "scan", reading)
    with pytest.raises(ProofFailed, match="NOT PROVEN"):
        erasure.call(Erase.of(ASKED))


def test_a_branch_that_is_opened_meanwhile_blocks_the_erasure(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(_: Any, step: str) -> None:
        if step == "noted":
            write(lake, 42, "anna.2@new.example")
            lake.branches.open(PEOPLE_TABLE, "pr_1")

    monkeypatch.setattr(operation.Erasure, "_at", at)
    with pytest.raises(SparkwapError, match="Do this first") as refused:
        erasure.call(Erase.of(ASKED))
    assert "wap_discard" in str(refused.value)
    assert not isinstance(refused.value, ConfigError)


def test_a_table_outside_of_the_warehouse_is_read_too(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    rows = pa.table({"address": ["anna.berg@mail.example"]})
    elsewhere = f"file://{tmp_path}/elsewhere/mailing"
    lake.catalog.create_table(("s", "mailing"), rows.schema, location=elsewhere).append(rows)
    with pytest.raises(SparkwapError, match=r"the table s\.mailing holds the subject"):
        erasure.call(Erase.of(ASKED))
    assert keys(lake) == [41, 42, 43]


def test_old_files_of_a_table_outside_of_the_warehouse_are_deleted(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    lake.catalog.purge_table(PEOPLE_TABLE)
    elsewhere = f"file://{tmp_path}/elsewhere/people"
    lake.catalog.create_table(PEOPLE_TABLE, PEOPLE.schema, location=elsewhere).append(PEOPLE)
    (tmp_path / "elsewhere" / "not_of_the_lake.txt").write_text("anna.berg@mail.example")
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        path.unlink()  # files of the dropped table
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43]
    parquet = list((tmp_path / "elsewhere").rglob("*.parquet"))
    assert parquet
    assert not any("anna" in repr(pq.read_table(path).to_pylist()) for path in parquet)
    assert (tmp_path / "elsewhere" / "not_of_the_lake.txt").exists()


def test_files_of_a_commit_beside_the_deletion_stay(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    reachable = file_references.reachable
    steps: list[str] = []
    written: list[DataFile] = []

    def at(_: Any, step: str) -> None:
        steps.append(step)
        table = lake.catalog.load_table(PEOPLE_TABLE)
        if step == "expired" and not written:
            row = PEOPLE.slice(0, 1)
            written.extend(_dataframe_to_data_files(table.metadata, row, table.io))
        if step == "deleted":
            with table.transaction() as change, change.update_snapshot().fast_append() as files:
                files.append_data_file(written[0])

    def read(*arguments: Any) -> Any:
        found = reachable(*arguments)
        if steps[-1:] == ["expired"]:
            steps.append("read")
            write(lake, 77, "zoe@mail.example")
        return found

    monkeypatch.setattr(operation.Erasure, "_at", at)
    monkeypatch.setattr(file_references, "reachable", read)
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert steps.count("read") == 1
    assert keys(lake) == [41, 41, 43, 77]


def test_the_ledger_stays_readable_when_a_run_writes_beside_the_deletion(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(run: str, message: str) -> None:
        row = {"run_id": run, "branch": "b", "message": message}
        lake.ledger.append(LedgerRows("runs", [row]))

    note("r1", "value anna.berg@mail.example is wrong")
    reachable = file_references.reachable
    steps: list[str] = []

    def read(*arguments: Any) -> Any:
        found = reachable(*arguments)
        if steps[-1:] == ["expired"]:
            steps.append("read")
            note("r2", "another run")
        return found

    monkeypatch.setattr(operation.Erasure, "_at", lambda _, step: steps.append(step))
    monkeypatch.setattr(file_references, "reachable", read)
    erasure.call(Erase.of(ASKED))
    runs = {row["run_id"]: row["message"] for row in Lake("lake", lake.properties).ledger.runs()}
    assert runs["r1"] == "(erased)"
    assert set(runs) == {"r1", "r2", RUN}
    assert left(tmp_path, "anna.berg@") == []


def test_files_without_the_subject_in_the_folder_of_a_table_stay(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    folder = tmp_path / "warehouse" / "s" / "people"
    others = [folder / "landing" / "2026.csv", folder / "_checkpoint" / "offsets" / "1"]
    for path in others:
        path.parent.mkdir(parents=True)
        path.write_text("id;name\n1;nobody\n")
    holding = folder / "data" / "left.parquet"
    pq.write_table(PEOPLE, holding)
    erasure.call(Erase.of(ASKED))
    assert [path.exists() for path in (*others, holding)] == [True, True, False]


def test_a_file_of_the_subject_that_a_run_may_commit_is_not_deleted(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    run_id = str(uuid.uuid4())
    run = leasing.hold(lake.leases, run_id=run_id, branch="b", command="build")
    path = tmp_path / "warehouse" / "s" / f"new-{run_id[:8]}" / "data" / "x.parquet"
    path.parent.mkdir(parents=True)
    time.sleep(0.05)
    pq.write_table(PEOPLE, path)
    with pytest.raises(ProofFailed, match=r"(?s)NOT PROVEN: 1 of.*Wait until .*in use by run"):
        erasure.call(Erase.of(ASKED))
    assert path.exists()
    lake.ledger.append(LedgerRows("runs", [{"run_id": run_id, "outcome": "failed"}]))
    run.release()
    erasure.call(Erase.of(ASKED))
    assert not path.exists()


def test_nothing_is_proven_beside_a_run_from_before_the_erasure(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    def hold(branch: str) -> leasing.Holding:
        run_id = str(uuid.uuid4())
        return leasing.hold(lake.leases, run_id=run_id, branch=branch, command="build")

    run = hold("b")
    later: list[leasing.Holding] = []
    rows = lake.catalog.load_table(PEOPLE_TABLE).scan().to_arrow()
    told = r"(?s)NOT PROVEN: .* a run is at work that began before.*Wait until .*in use by run"
    for _ in range(2):
        with pytest.raises(ProofFailed, match=told) as failed:
            erasure.call(Erase.of(ASKED))
        assert str(failed.value).count("Wait until it has ended") == 1
        later.append(hold("c"))
    later[0].release()
    later[1].release()
    assert erasure.result is not None and erasure.result.state == "not proven"
    # The run publishes what it has read.
    lake.catalog.create_table(("s", "copy"), rows.schema).append(rows)
    with pytest.raises(ConfigError, match=r"s\.copy holds the subject"):
        erasure.call(Erase.of(ASKED))
    lake.catalog.purge_table(("s", "copy"))
    run.release()
    later = hold("c")
    assert any("Proven: " in line for line in erasure.call(Erase.of(ASKED)))
    later.release()


def test_a_branch_that_is_opened_beside_the_expiry_is_kept(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_snapshot = live_manifests.live_snapshot

    def opened(*arguments: Any) -> Any:
        if "pr_1" not in lake.catalog.load_table(PEOPLE_TABLE).metadata.refs:
            lake.branches.open(PEOPLE_TABLE, "pr_1")
        return live_snapshot(*arguments)

    monkeypatch.setattr(expiry, "live_snapshot", opened)
    with pytest.raises(SparkwapError, match=r"got the audit branch pr_1.*wap_discard"):
        erasure.call(Erase.of(ASKED))
    assert "pr_1" in lake.catalog.load_table(PEOPLE_TABLE).metadata.refs


def test_a_table_that_may_share_its_files_is_not_erased(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    lake.catalog.purge_table(PEOPLE_TABLE)
    path = tmp_path / "hive" / "people.parquet"
    path.parent.mkdir()
    pq.write_table(PEOPLE, path)
    shared = {"gc.enabled": "false"}  # as Spark's procedure `snapshot` makes it
    table = lake.catalog.create_table(PEOPLE_TABLE, PEOPLE.schema, properties=shared)
    table.add_files([str(path)])
    with pytest.raises(ConfigError, match=r"s\.people has gc.enabled=false"):
        erasure.call(Erase.of(ASKED))
    assert path.exists()


def test_a_branch_in_use_is_to_be_waited_for(lake: Lake, erasure: Erasure) -> None:
    lake.branches.open(PEOPLE_TABLE, "pr_1")
    run_id = str(uuid.uuid4())
    run = leasing.hold(lake.leases, run_id=run_id, branch="pr_1", command="build")
    with pytest.raises(ConfigError, match=r"pr_1 has s\.people: it is in use by run.*wait until"):
        erasure.call(Erase.of(ASKED))
    run.release()
    with pytest.raises(ConfigError, match=r"pr_1 has s\.people: publish it .*wap_publish"):
        erasure.call(Erase.of(ASKED))


@pytest.mark.parametrize("step", ["noted", "rewritten", "published", "expired", "deleted"])
def test_an_interrupted_erasure_is_completed(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def at(_: Any, now: str) -> None:
        if now == step:
            raise RuntimeError("somebody pulled the plug")

    with monkeypatch.context() as patch:
        patch.setattr(operation.Erasure, "_at", at)
        with pytest.raises(SparkwapError, match="somebody pulled the plug"):
            erasure.call(Erase.of(ASKED))
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43]
    assert left(tmp_path, "anna.berg@") == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_table_of_another_catalog_in_the_database_keeps_its_files(
    lake: Lake, erasure: Erasure, shared: bool
) -> None:
    other = Lake("dev", lake.properties)
    other.ensure_schema("d")
    if shared:
        location = lake.catalog.load_table(PEOPLE_TABLE).metadata_location
        other.catalog.register_table(("d", "people"), location)
    else:
        other.catalog.create_table(("d", "people"), PEOPLE.schema).append(PEOPLE)
    told = r"(?s)NOT PROVEN.*d\.people of another catalog in this database"
    plan = "\n".join(erasure.call(Erase.of({**ASKED, "confirm": False})))
    assert "d.people of another catalog in this database refers to files" in plan
    with pytest.raises(ProofFailed, match=told):
        erasure.call(Erase.of(ASKED))
    assert other.catalog.load_table(("d", "people")).scan().to_arrow().num_rows == 3
    assert keys(lake) == [41, 43]
    other.catalog.drop_table(("d", "people"))
    other.close()
    if not shared:
        with pytest.raises(ConfigError, match=r"d/people/.*no table of this catalog has its fold"):
            erasure.call(Erase.of(ASKED))
    lines = erasure.call(Erase.of({**ASKED, "unreferenced": not shared}))
    assert any("none holds the subject" in line for line in lines)


def test_files_of_others_in_the_warehouse_stay(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    """Of a catalog in another database, and of a program without a catalog."""
    other = Lake("lake", {**lake.properties, "uri": f"sqlite:///{tmp_path}/other.db"})
    for schema in ("crm", "s"):
        other.ensure_schema(schema)
    location = f"{tmp_path}/warehouse/s/people"
    tables = [
        other.catalog.create_table(("crm", "clients"), PEOPLE.schema),
        other.catalog.create_table(("s", "people"), PEOPLE.schema, location=location),
    ]
    for table in tables:
        table.append(PEOPLE)
    export = tmp_path / "warehouse" / "exports" / "all.parquet"
    export.parent.mkdir()
    pq.write_table(PEOPLE, export)
    before = {path: path.read_bytes() for path in (tmp_path / "warehouse").rglob("*.*")}
    with pytest.raises(ConfigError) as refused:
        erasure.call(Erase.of(ASKED))
    told = str(refused.value)
    assert "exports/all.parquet" in told and "unreferenced: true" in told
    assert "it has metadata of a table that this catalog does not know" in told
    assert {path: path.read_bytes() for path in before} == before
    assert [table.refresh().scan().to_arrow().num_rows for table in tables] == [3, 3]
    told = "\n".join(erasure.call(Erase.of({**ASKED, "unreferenced": True})))
    assert "to which nothing refers, will be deleted" in told and "none holds the subject" in told
    assert not export.exists()


def test_all_folders_with_files_to_delete_are_named(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    paths = [warehouse / "s/people/data/email=anna.berg%40mail.example/0.parquet"]
    folders = [f"{warehouse}/{folder}/data" for folder in ("a/t", "b/t", "crm/t", "exports")]
    for folder in folders:
        paths += [Path(folder) / f"{n:04b}/city=Oslo/0.parquet" for n in (1, 2)]
    for path in paths:
        path.parent.mkdir(parents=True)
        pq.write_table(PEOPLE, path)
    own = r"data/email=[0-9a-f]{16}/0\.parquet"
    others = ", ".join(f"{folder} (2 files)" for folder in folders)
    with pytest.raises(ConfigError) as refused:
        erasure.call(Erase.of(ASKED))
    assert f"{others}: these files hold the subject" in str(refused.value)
    plan = "\n".join(erasure.call(Erase.of({**ASKED, "unreferenced": True, "confirm": False})))
    assert others in plan
    for told in (str(refused.value), plan):
        assert re.search(own, told) and "anna.berg" not in told
    assert all(path.exists() for path in paths)


def replaced(bench: Bench, rows: pa.Table) -> None:
    """Publish a new table in place of ``s.people``."""
    bench.lake.ensure_schema(SIDE, BRANCH)
    location = f"{bench.lake.branches.folder('s', BRANCH)}/people-3a2b3c4d"
    new = bench.lake.catalog.create_table((SIDE, "people"), PEOPLE.schema, location=location)
    new.append(rows)
    side = bench.side("people", bench.state(PEOPLE_TABLE).metadata_location)
    bench.publish(side, run_id=f"3{RUN[1:]}", tag=f"wap_pub_3{RUN[1:8]}")


def test_values_that_only_a_replaced_table_has_are_searched_for(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    emails = pa.array(["bo@mail.example", "frau.neu@web.example", "cleo@mail.example"])
    replaced(Bench(tmp_path), PEOPLE.set_column(1, "email", emails))
    notes = pa.table({"text": ["call anna.berg@mail.example today"]})
    lake.catalog.create_table(("s", "notes"), notes.schema).append(notes)
    with pytest.raises(ConfigError, match=r"the table s\.notes holds the subject"):
        erasure.call(Erase.of(ASKED))


def test_a_view_with_a_value_in_its_query_is_to_be_dropped_as_a_view(
    erasure: Erasure, tmp_path: Path
) -> None:
    Bench(tmp_path).view("anna", "select 'anna.berg@mail.example' as email", "s")
    with pytest.raises(ConfigError, match=r"the view s\.anna holds .* drop it \(drop view \.\.\)"):
        erasure.call(Erase.of(ASKED))


def test_a_forced_rollback_to_a_table_that_lost_files_is_refused(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    """Its states before the last one are in the ledger too, since publishes left the table."""
    bench = Bench(tmp_path)
    for day in (1, 2):
        base = lake.branches.open(PEOPLE_TABLE, BRANCH).base
        row = pa.table({"customer_id": [50 + day], "email": ["x"], "city": ["y"]}, PEOPLE.schema)
        lake.catalog.load_table(PEOPLE_TABLE).append(row, branch=BRANCH)
        published = on_branch(PEOPLE_TABLE, base, bench.head(PEOPLE_TABLE, BRANCH))
        bench.publish(published, run_id=f"{day}{RUN[1:]}", tag=f"wap_pub_{day}{RUN[1:8]}")
    replaced(bench, PEOPLE)
    erasure.call(Erase.of(ASKED))
    publishes = lake.ledger.publishes()
    second = next(one for one in publishes if one.run_id.startswith("2"))
    undone = [second, *rollback_plan.later_on_the_same(second, publishes)]
    with pytest.raises(RollbackRefused):
        lake.publishing.rollback(
            rollback_plan.entries_before(undone),
            run_id=f"4{RUN[1:]}",
            publish_id=second.publish_id,
            force=True,
        )
    assert keys(lake) == [41, 43]


def test_the_metadata_of_present_tables_is_not_held_in_memory(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    base = lake.branches.open(PEOPLE_TABLE, BRANCH).base
    lake.catalog.load_table(PEOPLE_TABLE).append(PEOPLE, branch=BRANCH)
    bench.publish(on_branch(PEOPLE_TABLE, base, bench.head(PEOPLE_TABLE, BRANCH)))
    former = bench.state(PEOPLE_TABLE).metadata_location
    held: list[Any] = []
    every = lake.store.map

    def kept(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        found = every(function, items)
        held.extend(found if former in items else ())
        return found

    monkeypatch.setattr(lake.store, "map", kept)
    assert LakeFiles(lake).former() == {}
    assert held and not any(held)
    monkeypatch.undo()
    replaced(bench, PEOPLE)
    assert former in LakeFiles(lake).former()


def added(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "old" / "x.parquet"
    path.parent.mkdir()
    pq.write_table(PEOPLE, path)
    lake.catalog.create_table(PEOPLE_TABLE, PEOPLE.schema).add_files([str(path)])


def linked(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse" / "s" / "people" / "data"
    folder.parent.mkdir(parents=True)
    (tmp_path / "disk2").mkdir()
    folder.symlink_to(tmp_path / "disk2")
    lake.catalog.create_table(PEOPLE_TABLE, PEOPLE.schema).append(PEOPLE)


def with_property(name: str) -> Callable[[Lake, Path], None]:
    def make(lake: Lake, tmp_path: Path) -> None:
        elsewhere = {f"write.{name}.path": f"{tmp_path}/elsewhere/people"}
        table = lake.catalog.create_table(PEOPLE_TABLE, PEOPLE.schema, properties=elsewhere)
        table.append(PEOPLE)

    return make


@pytest.mark.parametrize("step", ["", "published", "expired", "deleted"])
@pytest.mark.parametrize("make", [added, linked, with_property("data"), with_property("metadata")])
def test_files_of_a_table_outside_of_its_folder_are_read_and_deleted(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Lake, Path], None], step: str,
) -> None:  # fmt: skip
    lake.catalog.drop_table(PEOPLE_TABLE)
    shutil.rmtree(tmp_path / "warehouse" / "s")
    make(lake, tmp_path)

    def at(_: Any, now: str) -> None:
        if now == step:
            raise RuntimeError("somebody pulled the plug")

    with monkeypatch.context() as patch:
        patch.setattr(operation.Erasure, "_at", at)
        if step:
            with pytest.raises(SparkwapError, match="somebody pulled the plug"):
                erasure.call(Erase.of(ASKED))
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    assert keys(lake) == [41, 43]
    holding = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".db" and b"anna.berg" in bytes_of(path)
    ]
    assert holding == []


def test_values_in_files_outside_of_all_folders_are_learned(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    rows = pa.table({"customer_id": [42], "email": ["anna.2@x.example"], "city": ["Rome"]})
    path = tmp_path / "old" / "x.parquet"
    path.parent.mkdir()
    pq.write_table(rows, path)
    lake.catalog.load_table(PEOPLE_TABLE).add_files([str(path)])
    orphan = tmp_path / "warehouse" / "s" / "people" / "data" / "mail.txt"
    orphan.write_text("to anna.2@x.example")
    erasure.call(Erase.of(ASKED))
    assert not path.exists()
    assert not orphan.exists()


def test_a_file_that_cannot_be_deleted_is_named_without_its_values(
    lake: Lake, erasure: Erasure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "warehouse/s/people/data/email=anna.berg%40mail.example/0.parquet"
    path.parent.mkdir()
    pq.write_table(PEOPLE, path)
    delete = lake.store.files.delete
    monkeypatch.setattr(lake.store.files, "delete", lambda one: "email=" not in one and delete(one))
    with pytest.raises(SparkwapError, match=r"such as .*/data/email=\.\.\./0\.parquet") as failed:
        erasure.call(Erase.of(ASKED))
    assert "anna.berg" not in str(failed.value)


def test_nested_columns_of_the_ledger_are_cleaned(lake: Lake, erasure: Erasure) -> None:
    row = {
        "run_id": "r1",
        "branch": "b",
        "reads": {"s.people": "anna.berg@mail.example", "s.x": "1"},
        "built_on": {"by anna.berg@mail.example": "1", "to anna.berg@mail.example": "2"},
        "batches": ["anna.berg@mail.example", None, "a/b"],
    }
    lake.ledger.append(LedgerRows("nodes", [row]))
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    (now,) = lake.ledger.rows("nodes")
    assert now["reads"] == {"s.people": "(erased)", "s.x": "1"}
    assert list(now["built_on"]) == ["(erased)"]
    assert now["batches"] == ["(erased)", None, "a/b"]
    assert now["named"] is None


def test_the_ledger_is_cleaned_while_runs_write_to_it(
    lake: Lake, erasure: Erasure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(run: str, message: str) -> None:
        other.ledger.append(LedgerRows("runs", [{"run_id": run, "message": message}]))

    other = Lake("lake", lake.properties)
    note("r1", "value anna.berg@mail.example is wrong")
    erased = operation._without_names
    written: list[str] = []

    def slow(*arguments: Any) -> Any:
        if not written:
            written.append("r2")
            note("r2", "anna.berg@mail.example again")
        return erased(*arguments)

    monkeypatch.setattr(operation, "_without_names", slow)
    lines = erasure.call(Erase.of(ASKED))
    assert any("none holds the subject" in line for line in lines)
    runs = {row["run_id"]: row["message"] for row in other.ledger.runs()}
    assert (runs["r1"], runs["r2"]) == ("(erased)", "(erased)")
    other.close()


def test_the_plan_tells_that_a_history_from_snapshots_begins_again(
    lake: Lake, engine: Engine, tmp_path: Path
) -> None:
    node = NodeColumns("model.people", PEOPLE_TABLE, "model", MARKS, has_history=True)
    erasure = Erasure(
        lake, engine, run_id=RUN, nodes=lambda: [node], project="shop", target_name="t",
        folder=tmp_path / "target",
    )  # fmt: skip
    plan = erasure.call(Erase.of({**ASKED, "confirm": False}))
    assert any("former versions of ALL keys are lost" in line for line in plan)


def test_no_path_in_the_report_has_a_value_of_a_marked_column(
    lake: Lake, erasure: Erasure, tmp_path: Path
) -> None:
    for name in ("email=bo@b.example", "Email_trunc=bo@b", "day=monday"):
        path = tmp_path / "warehouse" / "s" / "lists" / name / "one.csv"
        path.parent.mkdir(parents=True)
        path.write_text("x")
    erasure.call(Erase.of(ASKED))
    assert erasure.result is not None and erasure.result.report is not None
    told = erasure.result.report.read_text()
    assert "bo@b" not in told and "day=monday/one.csv" in told
    assert re.search("/email=[0-9a-f]{16}/one.csv", told)
