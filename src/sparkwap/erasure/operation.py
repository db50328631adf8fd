"""``wap_erase`` and ``wap_rectify``, from the marks in the YAML to the proof.

The operation has these steps. After a crash in any step, a second call continues:

1. look: read the lake, find the subject's rows, values and files, and print the plan; without
   ``confirm``, the operation ends here
2. rewrite: DELETE and UPDATE on an audit branch, and an audit of the branch
3. publish: all tables in one transaction
4. forget: remove former snapshots, branches, tags and logs of these tables, then the files to which
   nothing refers
5. prove: read every file of the lake
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from sparkwap.catalog import Candidate, Identifier, LedgerRows, PublishRefused
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import local_path, plain_location
from sparkwap.catalog.pointers import Pointer
from sparkwap.catalog.store import Staged
from sparkwap.core import names
from sparkwap.core.errors import ConfigError, GateError, SparkwapError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.erasure import report
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.file_search import LEDGER_IDS
from sparkwap.erasure.finder import Found, Sql, SubjectFinder, how_to_end
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.progress import ErasureProgress
from sparkwap.erasure.proof import Proof
from sparkwap.erasure.request import Erase
from sparkwap.erasure.rewrite import Rewrite
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import NodeColumns
from sparkwap.maintenance import expiry, file_references, live_manifests
from sparkwap.maintenance.compaction import remove_leftovers
from sparkwap.publish.lake import Lake
from sparkwap.runs.operations.found import ErasureResult

_LOOKS = 4
"""Greatest number of looks at the lake if others write to it meanwhile."""


class ProofFailed(GateError):
    """Files of the lake still hold the subject."""


class Erasure:
    """The two operations on one lake.

    Args:
        sql: Runs a statement in a Spark session that reads ``main``, and returns its rows.
        run_id: dbt's invocation id.
        nodes: Returns the project's models, snapshots, seeds, sources and tests.
        project: The project's name, for the ledger.
        target_name: dbt's target, for the ledger.
        folder: The folder of the reports, and of the progress of an interrupted operation.
        tag_max_age_ms: How long the receipt keeps its snapshot; None for ever.
        beside: Files and folders of the lake outside the warehouse.
        of_server: Folders of the Spark server's log and scratch files. The report lists such files
            that hold the subject, but the proof does not depend on them, because a log cannot be
            changed while the server writes it. None if the server does not belong to the lake.
        begin: Called with the tables of a rewrite, before it.
    """

    def __init__(
        self,
        lake: Lake,
        sql: Sql,
        *,
        run_id: str,
        nodes: Callable[[], Sequence[NodeColumns]],
        project: str,
        target_name: str,
        folder: Path,
        tag_max_age_ms: int | None = None,
        beside: Sequence[Path] = (),
        of_server: Sequence[Path] | None = None,
        begin: Callable[[Collection[Identifier]], None] = lambda _: None,
    ) -> None:
        self._lake = lake
        self._sql = sql
        self._run_id = run_id
        self._nodes = nodes
        self._project = project
        self._target_name = target_name
        self._folder = folder
        self._tag_max_age_ms = tag_max_age_ms
        self._files = LakeFiles(lake, beside, of_server or ())
        self._spark_elsewhere = of_server is None
        self._begin = begin
        self._started = datetime.now(UTC)
        self.result: ErasureResult | None = None
        """What the last call has found or done, for programs."""

    def call(self, request: Erase) -> list[str]:
        """Run an operation; returns the lines to print.

        Raises:
            ConfigError: Marks have errors, or something blocks the operation; nothing has changed.
            ProofFailed: The operation is done, but files still hold the subject.
            SparkwapError: The operation was interrupted; the message has the next step.
        """
        path = self._folder / f"open_{request.token}.json"
        journal = ErasureProgress.read(path, secrets.token_hex(8))
        nodes = self._nodes()

        def look() -> Found:
            found = SubjectFinder(self._files, self._sql, nodes, request, journal).find()
            journal.note(found.reach, self._touched(found))
            return found

        found = look()
        there = {file.path for file in found.proof.files}
        states = self._lake.states(place.identifier for place in found.places)
        plan = report.plan(request, found, states, Conditions(journal.salt))
        self.result = report.plan_result(request, found, journal.report)
        if not request.confirm:
            return [*plan, *report.next_steps(request, found.blockers)]
        if found.blockers:
            raise ConfigError("\n".join([*plan, *report.next_steps(request, found.blockers)]))
        self._lake.store.backend.require_writer()
        remove_leftovers(self._lake)
        self._require_no_maintenance("Nothing was changed")
        if not journal.report:
            journal.report = report.before(found)
        journal.write(path)
        self.result = replace(self.result, state="begun")
        try:
            self._at("noted")
            found = self._rewrite_all(found, look, journal, path)
            forgotten = self._forget(found, there, journal, path)
            reach = file_references.reachable(self._lake, self._lake.store.backend.all())
        except Exception as error:
            raise SparkwapError(f"{error}\n{report.call_again(request)}") from error
        return [*plan, *self._prove(request, found, journal, path, forgotten, reach)]

    def _require_no_maintenance(self, state: str) -> None:
        """Check that no maintenance rewrites files, since it may write the subject's rows again."""
        for lease in leasing.living(self._lake.leases):
            if lease.command == leasing.MAINTENANCE:
                raise GateError(
                    f"A maintenance is at work: {leasing.describe(lease, lives=True)}. {state}. "
                    "Wait until it has ended."
                )

    def _at(self, step: str) -> None:
        """Do nothing; called after each step, so that tests can interrupt there."""

    def _rewrite_all(
        self, found: Found, look: Callable[[], Found], journal: ErasureProgress, path: Path
    ) -> Found:
        """Rewrite and publish; look again if others have written since the last look.

        The new rows may belong to the subject, and may have new personal values.

        Returns:
            The result of the last look, since which nobody else has written.
        """
        for _ in range(_LOOKS):
            published = self._rewrite(found, journal, path)
            moved = self._moved(found, published)
            if published is not None and not moved:
                return found
            found = look()
            if found.blockers:
                raise GateError(
                    "Others wrote to these tables meanwhile. Do this first:\n"
                    + "\n".join(f"  {blocker}" for blocker in found.blockers)
                )
            journal.write(path)
        raise GateError(
            f"In each of {_LOOKS} tries, others wrote to the tables that hold the subject, last "
            f"to {', '.join('.'.join(name) for name in moved) or 'a table before its publish'}. "
            "Wait until they have ended."
        )

    def _moved(self, found: Found, published: Mapping[Identifier, int] | None) -> list[Identifier]:
        """Return the tables whose ``main`` is neither the seen nor the published snapshot."""
        states = self._lake.states(found.heads)
        return [
            name
            for name, head in sorted(found.heads.items())
            if name in states and states[name].main != (published or {}).get(name, head)
        ]

    def _rewrite(
        self, found: Found, journal: ErasureProgress, path: Path
    ) -> Mapping[Identifier, int] | None:
        """Rewrite the tables on an audit branch of the operation, audit and publish them.

        Returns:
            The published snapshots by table; None if ``main`` moved and nothing was published.
        """
        if journal.branch is not None:
            # An earlier call died and left this branch.
            self._lake.branches.discard(journal.branch, self._run_id)
        if not found.rewrites:
            return {}
        self._begin({rewrite.identifier for rewrite in found.rewrites})
        branch = names.audit_branch(self._run_id, None)
        journal.branch = branch
        journal.write(path)
        candidates: list[Candidate] = []
        for rewrite in found.rewrites:
            base = self._lake.branches.open(rewrite.identifier, branch).base
            if base != found.heads[rewrite.identifier]:
                return None
            for statement in rewrite.statements(branch):
                self._sql(statement)
            head = live_manifests.keep_live_files(
                self._lake, rewrite.identifier, branch, self._run_id
            )
            if not self._audit(rewrite, branch, base):
                return None
            candidates.append(
                Candidate(rewrite.identifier, branch, "branch", base, token=str(head))
            )
            self._at("rewritten")
        try:
            self._lake.publishing.publish(
                candidates,
                run_id=self._run_id,
                tag=names.publish_tag(self._run_id),
                tag_max_age_ms=self._tag_max_age_ms,
                branch=branch,
            )
        except PublishRefused as refused:
            if any(mismatch.kind != "main" for mismatch in refused.mismatches):
                raise
            return None
        self._at("published")
        return {one.identifier: one.head for one in candidates}

    def _audit(self, rewrite: Rewrite, branch: str, base: int | None) -> bool:
        """Compare the rows of the branch with the expected rows.

        Returns:
            Whether they are equal; False also if ``main`` moved, so that they cannot be compared.

        Raises:
            GateError: They differ, and ``main`` did not move.
        """
        expected, actual = (tuple(map(str, self._sql(query)[0])) for query in rewrite.audit(branch))
        if expected != actual:
            state = self._lake.state(rewrite.identifier)
            if state is not None and state.main != base:
                return False
            raise GateError(
                f"{'.'.join(rewrite.identifier)}: the branch {branch} does not have the expected "
                f"rows (number, sum and check of hashes: expected {', '.join(expected)}; found "
                f"{', '.join(actual)}). This try has published nothing."
            )
        return True

    def _forget(
        self, found: Found, there: Collection[str], journal: ErasureProgress, path: Path
    ) -> list[expiry.Expired]:
        """Expire the tables that held the subject, and delete their former files.

        Args:
            there: The files at the first look.
            journal: Gets the files to which the tables refer until now.
        """
        state = "The erasure is published, but the maintenance may still write former rows"
        self._require_no_maintenance(state)
        self._clean_ledger(found)
        touched = self._touched(found)
        rows = self._lake.store.backend.find(touched).values()
        journal.note(file_references.reachable(self._lake, rows), touched)
        self._note_runs(touched, journal, path)
        forgotten = []
        for identifier in sorted(touched):
            self._require_no_maintenance(state)
            alone = partial(self._require_alone, identifier)
            forgotten.append(expiry.expire(self._lake, identifier, self._run_id, alone))
            self._at("expired")
        expiry.end_cuts(self._lake, self._run_id)
        self._note_runs(touched, journal, path)
        self._require_no_maintenance(state)
        self._delete(found, there, journal)
        return forgotten

    def _note_runs(
        self, touched: Collection[Identifier], journal: ErasureProgress, path: Path
    ) -> None:
        if touched:
            had = (lease.run_id for lease in self._lake.leases.all())
            journal.runs = sorted({*journal.runs, *had})
        journal.write(path)

    def _touched(self, found: Found) -> set[Identifier]:
        """Return the tables of the subject that hold it or are rewritten, with the ledger's."""
        reached = {place.identifier for place in found.places} | self._ledger_tables()
        return found.touched() & reached

    def _require_alone(self, identifier: Identifier, document: md.Document) -> None:
        """Check that no run has begun meanwhile, since it would start from the erased rows."""
        branches = [
            name
            for name, ref in md.refs_of(document).items()
            if ref.type == "branch" and name != md.MAIN
        ]
        if branches:
            raise GateError(
                f"{'.'.join(identifier)} got the audit branch {branches[0]} while its rows were "
                "erased. The erasure is published, but former snapshots still hold the rows. Do "
                f"this first: {how_to_end(self._lake, branches[0])}."
            )

    def _delete(self, found: Found, there: Collection[str], journal: ErasureProgress) -> None:
        """Delete files to which nothing refers: the former ones of tables, and the subject's.

        All others may belong to a commit that another writer has begun.

        Args:
            there: The files at the first look: of the subject's files, only these go.
            journal: Has the former files of tables.
        """
        former, orphans = set(journal.files), found.orphans.intersection(there)
        listed = {file.path: plain_location(file.path) for file in self._files.listing()}
        elsewhere = former.difference(listed.values())
        paths = [
            path
            for path, location in listed.items()
            if file_references.checked(location) in former or path in orphans
        ]
        paths += elsewhere
        rows = self._rows()
        paths = file_references.unreachable(paths, file_references.reachable(self._lake, rows))
        # A rollback may have brought a former state back while the others were read.
        fresh = file_references.reachable(self._lake, self._rows() - rows)
        paths = file_references.unreachable(paths, fresh)
        # These go first, so that a rollback cannot bring back a table that has lost files.
        if metadata := self._former_tables(paths):
            file_references.delete_files(self._lake, metadata)
        file_references.delete_files(self._lake, paths)
        self._at("deleted")

    def _former_tables(self, paths: Collection[str]) -> list[str]:
        """Return the metadata files of the replaced tables to which some of the files belong."""
        going = {plain_location(path) for path in paths}
        if not going:
            return []
        former = self._files.former()
        exists = self._lake.store.files.exists

        def loses_files(location: str) -> bool:
            document = dict(former[location])
            # A rollback leaves out the snapshots that have expired since.
            snapshots = document.get("snapshots") or ()
            document["snapshots"] = [
                one for one in snapshots if exists(str(one.get("manifest-list", location)))
            ]
            try:
                files = file_references.files_of_document(self._lake, location, document)
            except FileNotFoundError:
                return True
            return not going.isdisjoint(map(plain_location, files))

        return [location for location in former if loses_files(location)]

    def _rows(self) -> set[Pointer]:
        """Return the tables and views of all catalogs in the same database."""
        return set(self._lake.store.backend.known())

    def _ledger_tables(self) -> set[Identifier]:
        return {(LEDGER_SCHEMA, name) for name in self._lake.relations(LEDGER_SCHEMA)}

    def _clean_ledger(self, found: Found) -> None:
        """Replace the texts of the ledger that name the subject by `report.ERASED`."""
        for _, name in sorted(found.tables_with_files() & self._ledger_tables()):
            # If a run writes to the ledger meanwhile, the commit is staged again.
            self._lake.store.commit(partial(self._clean_table, name, found.search), "ledger")

    def _clean_table(self, name: str, search: Search) -> Staged[None]:
        clean: list[pa.Table] = []

        def named(table: Table) -> bool:
            rows = table.scan().to_arrow()
            clean.append(_without_names(rows, search))
            return clean[0] is not rows

        # Imported here, because it loads datasets of PyArrow, which most commands do not need.
        from sparkwap.ledger.tables import TableChange

        change = TableChange(name, lambda table: table.overwrite(clean[0]), only_if=named)
        return self._lake.ledger.stage_changes([change])

    def _prove(
        self,
        request: Erase,
        found: Found,
        journal: ErasureProgress,
        path: Path,
        forgotten: Sequence[expiry.Expired],
        reach: Mapping[str, set[Identifier]],
    ) -> list[str]:
        # A run that ends while the files are read may publish after its folder was listed.
        living = leasing.living(self._lake.leases)
        early = [run for run in living if run.run_id in journal.runs]
        states = self._lake.states(row.identifier for row in self._lake.store.backend.all())
        scanner = self._files.scanner(found.search, found.places, states, request.ignored, reach)
        paths = self._files.paths([*journal.files, *reach])
        proof = self._files.scan(scanner, paths)
        # Others may have written files while these were read.
        late = sorted(set(self._files.paths()) - set(paths))
        proof = Proof((*proof.files, *self._files.scan(scanner, late).files))
        of_server = self._files.scan(scanner, self._files.server_paths())
        document = report.document(
            request,
            found,
            journal,
            proof,
            run_id=self._run_id,
            forgotten=forgotten,
            early=[leasing.describe(run, lives=True) for run in early],
            of_server=[file.path for file in of_server.holding],
            not_reached=report.not_reached(
                object_store=local_path(self._lake.warehouse) is None,
                catalog_server=not self._lake.store.backend.atomic,
                spark_server=self._spark_elsewhere,
            ),
        )
        written = report.write(self._folder, names.short_run_id(self._run_id), document)
        clean = bool(document["clean"])
        outcome = "proven" if clean else "not proven"
        message = report.message(request, document, written[0])
        row = {
            "run_id": self._run_id,
            "branch": names.audit_branch(self._run_id, None),
            "command": request.name,
            "project": self._project,
            "target": self._target_name,
            "started_at": self._started,
            "ended_at": datetime.now(UTC),
            "outcome": outcome,
            "message": message,
        }
        self._lake.ledger.append(LedgerRows("runs", [row]))
        lines = report.result(document, written)
        if self.result is not None:
            self.result = replace(
                self.result,
                state=outcome,
                files=len(proof.files),
                holding=len(proof.holding),
                report=written[0],
            )
        if not clean:
            runs = [
                "A run may still commit files that it has written, so they stay, or publish rows "
                "that it has read before. Wait until it has ended: "
                f"{leasing.describe(run, lives=True)}."
                for run in (early if proof.clean else living)
            ]
            told = [*lines, *report.of_others(found.others), *runs, report.call_again(request)]
            raise ProofFailed("\n".join(told))
        path.unlink(missing_ok=True)
        return lines


def _without_names(rows: pa.Table, search: Search) -> pa.Table:
    """Return the ledger's rows with `report.ERASED` in place of texts that name the subject."""
    for index, column in enumerate(rows.schema):
        values = rows.column(index).to_pylist()
        named = search.in_ids if column.name in LEDGER_IDS else search
        clean = [_without_name(value, named) for value in values]
        if clean != values:
            rows = rows.set_column(index, column, pa.array(clean, column.type))
    return rows


def _without_name(value: Any, search: Search) -> Any:
    if isinstance(value, str):
        return report.ERASED if search.in_text(value) else value
    if not isinstance(value, list | tuple):
        return value
    clean = [_without_name(one, search) for one in value]
    if isinstance(value, tuple):
        return tuple(clean)
    # A map is a list of pairs; a key that is erased twice would be there twice.
    is_map = any(isinstance(one, tuple) for one in value)
    return list(dict(clean).items()) if is_map else clean
