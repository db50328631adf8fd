"""``wap_erase`` and ``wap_rectify``: from the marks in the YAML to the proof.

The steps, each of which may be the last one before a crash; calling the operation again goes on:

1. look: read the lake, find the subject's rows, values and files; tell the plan (dry run ends here)
2. rewrite: DELETE and UPDATE on an audit branch, audited there
3. publish: all tables in one transaction
4. forget: snapshots, branches, tags and logs of these tables, then the files that nothing refers to
5. prove: read every file of the lake
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from sparkwap.catalog import BranchItem, Identifier, LedgerRows, PublishRefused
from sparkwap.catalog import metadata as md
from sparkwap.catalog.files import plain_location
from sparkwap.core import names
from sparkwap.core.errors import ConfigError, GateError, SparkwapError
from sparkwap.core.names import LEDGER_SCHEMA
from sparkwap.erasure import report
from sparkwap.erasure.conditions import Conditions
from sparkwap.erasure.finder import Found, Sql, SubjectFinder
from sparkwap.erasure.lake_files import LakeFiles
from sparkwap.erasure.progress import ErasureProgress
from sparkwap.erasure.proof import Proof
from sparkwap.erasure.request import Erase
from sparkwap.erasure.rewrite import Rewrite
from sparkwap.erasure.search import Search
from sparkwap.erasure.subject_tables import NodeColumns
from sparkwap.maintenance import expiry, file_references, live_manifests
from sparkwap.publish.lake import Lake

_LOOKS = 4
"""How often the lake is looked at, where others write to it meanwhile."""


class ProofFailed(GateError):
    """Files of the lake still hold the subject."""


class Erasure:
    """The two operations on one lake.

    Args:
        lake: The lake.
        sql: Runs a statement in a Spark session that reads ``main``, and returns its rows.
        run_id: dbt's invocation id.
        nodes: The project's models, snapshots, seeds, sources and tests.
        project: Its name, for the ledger.
        target_name: dbt's target, for the ledger.
        folder: Where reports and the notes of an interrupted operation are kept.
        tag_max_age_ms: How long the receipt keeps its snapshot; None for ever.
        beside: Further files and folders of the lake that are read, besides the warehouse.
        of_server: Folders of the Spark server's log and scratch files. They are read and told of,
            but nobody can take a line out of a log that is being written, so that the proof does
            not depend on them. None where the server is not the lake's own: the report says so.
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
        self._started = datetime.now(UTC)

    def call(self, request: Erase) -> list[str]:
        """Run an operation; the lines to print.

        Raises:
            ConfigError: Marks have errors, or something is in the way; nothing has changed.
            ProofFailed: It was done, and files still hold the subject.
            SparkwapError: It was interrupted; the message says how to go on.
        """
        path = self._folder / f"open_{request.token}.json"
        journal = ErasureProgress.read(path, secrets.token_hex(8))
        nodes = self._nodes()

        def look() -> Found:
            return SubjectFinder(self._files, self._sql, nodes, request, journal).find()

        found = look()
        states = self._lake.states(place.identifier for place in found.places)
        plan = report.plan(request, found, states)
        if not request.confirm:
            return [*plan, *report.ways_on(request, found.blockers)]
        if found.blockers:
            raise ConfigError("\n".join([*plan, *report.ways_on(request, found.blockers)]))
        if not journal.report:
            journal.report = report.before(found)
        journal.write(path)
        try:
            self._at("noted")
            found = self._rewrite_all(found, look, journal, path)
            forgotten = self._forget(found)
        except Exception as error:
            raise SparkwapError(f"{error}\n{report.go_on(request)}") from error
        return [*plan, *self._prove(request, found, journal, path, forgotten)]

    def _at(self, step: str) -> None:
        """Passed after each step; tests interrupt here."""

    # -- rewriting and publishing ----------------------------------------------------------------

    def _rewrite_all(
        self, found: Found, look: Callable[[], Found], journal: ErasureProgress, path: Path
    ) -> Found:
        """Rewrite and publish; look again where others have written since the last look.

        Their rows may be the subject's, and may have values that nobody has heard of.

        Returns:
            The last look, after which nobody else wrote.
        """
        for _ in range(_LOOKS):
            published = self._rewrite(found, journal, path)
            moved = self._moved(found, published)
            if published is not None and not moved:
                return found
            found = look()
            if found.blockers:
                raise GateError(
                    "Others wrote to these tables meanwhile, and this is in the way now:\n"
                    + "\n".join(f"  {one}" for one in found.blockers)
                )
            journal.write(path)
        raise GateError(
            f"In {_LOOKS} tries others wrote each time to the tables that hold the subject, last "
            f"to {', '.join('.'.join(name) for name in moved) or 'one that was to be published'}. "
            "Let them end first."
        )

    def _moved(self, found: Found, published: Mapping[Identifier, int] | None) -> list[Identifier]:
        """The tables whose ``main`` is neither what was looked at nor what was published."""
        states = self._lake.states(found.heads)
        return [
            name
            for name, head in sorted(found.heads.items())
            if name in states and states[name].main != (published or {}).get(name, head)
        ]

    def _rewrite(
        self, found: Found, journal: ErasureProgress, path: Path
    ) -> Mapping[Identifier, int] | None:
        """Rewrite the tables on an audit branch of the operation's own, audit, publish.

        Returns:
            What was published, by table; None if ``main`` moved before, so that nothing was.
        """
        if journal.branch is not None:
            # What a call that died has left half-rewritten.
            self._lake.branches.discard(journal.branch, self._run_id)
        if not found.rewrites:
            return {}
        branch = names.audit_branch(self._run_id, None)
        journal.branch = branch
        journal.write(path)
        items: list[BranchItem] = []
        for rewrite in found.rewrites:
            base = self._lake.branches.open(rewrite.identifier, branch).base
            if base != found.heads[rewrite.identifier]:
                return None
            for statement in rewrite.statements(branch):
                self._sql(statement)
            candidate = live_manifests.keep_live_files(
                self._lake, rewrite.identifier, branch, self._run_id
            )
            if not self._audit(rewrite, branch, base):
                return None
            items.append(BranchItem(rewrite.identifier, branch, base, candidate))
            self._at("rewritten")
        try:
            self._lake.publishing.publish(
                items,
                run_id=self._run_id,
                tag=names.publish_tag(self._run_id),
                tag_max_age_ms=self._tag_max_age_ms,
                branch=branch,
            )
        except PublishRefused as refused:
            if any(one.kind != "main" for one in refused.mismatches):
                raise
            return None
        self._at("published")
        return {item.identifier: item.candidate for item in items}

    def _audit(self, rewrite: Rewrite, branch: str, base: int | None) -> bool:
        """Compare what the branch holds with what it must hold.

        Returns:
            Whether they are the same; False also where ``main`` moved, so that nobody can tell.

        Raises:
            GateError: They differ, and ``main`` is what it was.
        """
        expected, there = (tuple(map(str, self._sql(query)[0])) for query in rewrite.audit(branch))
        if expected != there:
            state = self._lake.state(rewrite.identifier)
            if state is not None and state.main != base:
                return False
            raise GateError(
                f"{'.'.join(rewrite.identifier)}: the branch {branch} does not hold what it must "
                f"(rows, sum and check of hashes: expected {', '.join(expected)}; found "
                f"{', '.join(there)}). Nothing was published; readers of main see what they saw."
            )
        return True

    # -- forgetting ------------------------------------------------------------------------------

    def _forget(self, found: Found) -> list[expiry.Expired]:
        """Expire what held the subject, and delete the files that nothing refers to any more."""
        self._clean_ledger(found)
        reached = {place.identifier for place in found.places} | self._ledger_tables()
        touched = found.tables_with_files() | {r.identifier for r in found.rewrites}
        forgotten = []
        for identifier in sorted(touched & reached):
            self._require_alone(identifier)
            forgotten.append(expiry.expire(self._lake, identifier, self._run_id))
            self._at("expired")
        self._delete(found, {one.identifier for one in forgotten})
        return forgotten

    def _require_alone(self, identifier: Identifier) -> None:
        """A run that began meanwhile started from rows with the subject in them."""
        state = self._lake.state(identifier)
        branches = [
            name
            for name, ref in (state.refs if state is not None else {}).items()
            if ref.type == "branch" and name != md.MAIN
        ]
        if branches:
            raise GateError(
                f"{'.'.join(identifier)} got the audit branch {branches[0]} while its rows were "
                "erased. The erasure is published, but former snapshots still hold the rows. "
                "Publish or discard that branch (dbt run-operation wap_discard --args "
                f"'{{branch: {branches[0]}}}')."
            )

    def _delete(self, found: Found, expired: set[Identifier]) -> None:
        reach = file_references.reachable(self._lake)
        states = self._lake.states(expired)
        folders = [f"{plain_location(state.location)}/" for state in states.values()]
        holding = {file.path for file in found.proof.holding}
        inside = (f"{plain_location(self._lake.warehouse)}/", *folders)
        paths = [
            path
            for path in self._files.paths()
            if path in holding or any(plain_location(path).startswith(f) for f in folders)
        ]
        doomed = file_references.unreachable(paths, reach)
        # Beside the warehouse are the catalog's database and the server's own files.
        doomed = [path for path in doomed if plain_location(path).startswith(inside)]
        file_references.delete_files(self._lake, doomed)
        self._at("deleted")

    # -- the ledger ------------------------------------------------------------------------------

    def _ledger_tables(self) -> set[Identifier]:
        return {(LEDGER_SCHEMA, name) for name in self._lake.relations(LEDGER_SCHEMA)}

    def _clean_ledger(self, found: Found) -> None:
        """Put a word in the place of messages that name the subject."""
        for identifier in sorted(found.tables_with_files() & self._ledger_tables()):
            table = self._lake.catalog.load_table(identifier)
            rows = table.scan().to_arrow()
            clean = _without_names(rows, found.search)
            if clean is not rows:
                table.overwrite(clean)

    # -- proving ---------------------------------------------------------------------------------

    def _prove(
        self,
        request: Erase,
        found: Found,
        journal: ErasureProgress,
        path: Path,
        forgotten: Sequence[expiry.Expired],
    ) -> list[str]:
        states = self._lake.states(row.identifier for row in self._lake.store.backend.all())
        scanner = self._files.scanner(found.search, found.places, states, request.ignored)
        paths = self._files.paths()
        proof = self._files.scan(scanner, paths)
        # What others wrote while the files were read.
        late = sorted(set(self._files.paths()) - set(paths))
        proof = Proof((*proof.files, *self._files.scan(scanner, late).files))
        of_server = self._files.scan(scanner, self._files.server_paths())
        conditions = Conditions(journal.salt)
        document = report.document(
            request,
            proof,
            run_id=self._run_id,
            keys=sorted(conditions.digest(key) for key in journal.keys),
            salt=journal.salt,
            before=journal.report,
            forgotten=forgotten,
            outside=journal.outside,
            of_server=[file.path for file in of_server.holding],
            shared=found.shared,
            not_reached=report.not_reached(
                catalog_server=not self._lake.store.backend.takes_files,
                spark_server=self._spark_elsewhere,
            ),
        )
        written = report.write(self._folder, names.short_run_id(self._run_id), document)
        outcome = "proven" if proof.clean else "not proven"
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
        if not proof.clean:
            raise ProofFailed("\n".join([*lines, report.go_on(request)]))
        path.unlink(missing_ok=True)
        return lines


def _without_names(rows: pa.Table, search: Search) -> pa.Table:
    """The rows with a word in the place of each text that names the subject."""
    for index, column in enumerate(rows.schema):
        if column.type in (pa.string(), pa.large_string()):
            texts = rows.column(index).to_pylist()
            clean = [report.ERASED if text and search.in_text(text) else text for text in texts]
            if clean != texts:
                rows = rows.set_column(index, column, pa.array(clean, column.type))
    return rows
