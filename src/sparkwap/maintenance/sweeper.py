"""A sweep: surveys the catalog, decides, removes branches and tags, deletes files, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sparkwap.catalog import LedgerRows
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import SparkwapError
from sparkwap.core.text import counted
from sparkwap.gate.settings import GateSettings, Limits
from sparkwap.maintenance import orphans, removal
from sparkwap.maintenance.compaction import remove_leftovers
from sparkwap.maintenance.decision import SweepPlan, Swept, decide
from sparkwap.maintenance.survey import Survey, take_survey
from sparkwap.publish.lake import Lake

_SHOWN = 20
_FILES_EVERY = timedelta(days=1)


@dataclass
class SweepReport:
    """The result, or the preview, of a sweep.

    Attributes:
        plan: The decision.
        found: The files to which nothing refers.
        done: False for a preview, which changes nothing.
        branches: Branch -> number of tables and views on it.
        snapshots: Number of snapshots of runs that no branch and no tag reaches.
        dead: Runs that died, in words.
        problems: Objects that could not be removed, with the reason.
    """

    plan: SweepPlan
    found: orphans.Orphans
    done: bool
    branches: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0
    dead: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def anything(self) -> bool:
        """Whether the sweep removed, or would remove, something."""
        plan = self.plan
        planned = plan.branches or plan.tags or plan.manifests
        return bool(planned or self.snapshots or self.found.count)


class Sweeper:
    """Sweeps one lake.

    Args:
        lake: The lake.
        run_id: The run that sweeps, for the ledger.
        limits: The ages.
        retention_days: Days for which a publish can be rolled back, so that the tables which it
            replaced stay; None for ever.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        run_id: str,
        limits: Limits,
        retention_days: int | None,
    ) -> None:
        self._lake = lake
        self._run_id = run_id
        self._limits = limits
        self._retention = retention_days

    def look(self) -> SweepReport:
        """Return what a sweep would remove now, without changing anything.

        Raises:
            CatalogError: Metadata cannot be read.
        """
        survey, plan = self._decided()
        gone = {branch.name for branch in plan.branches}
        tags = _by_table(plan.tags)
        before_ms = 0 if survey.replayed else _ms(self._snapshots_before(survey.now))
        documents: dict[Pointer, md.Document] = {}
        to_remove: list[md.Document] = []
        snapshots = 0
        for row in survey.rows:
            owner = survey.side_schemas.get(row.identifier[0])
            document = self._lake.store.load(row.location)
            if owner in gone:
                to_remove.append(document)
                continue
            touched = any(branch in md.refs_of(document) for branch in gone)
            used = _used(survey, document)
            if owner is None and row.kind == "table" and (touched or not used):
                dropped = () if used else tags.get(".".join(row.identifier), ())
                less = removal.after(document, gone, dropped, before_ms)
                snapshots += len(document.get("snapshots") or ()) - len(less.get("snapshots") or ())
                document = less
            documents[row] = document
        return SweepReport(
            plan,
            self._find(survey, documents, to_remove),
            done=False,
            branches=self._sizes(plan),
            snapshots=snapshots,
            dead=[
                leasing.describe(lease, lives=False) for lease, lives in survey.leases if not lives
            ],
        )

    def sweep(self, *, files: bool = True) -> SweepReport:
        """Remove branches, then tags and snapshots of each table, then files.

        The report lists objects that cannot be removed; the sweep continues with the others.

        Args:
            files: Also look for files to which nothing refers. Reads all manifests of the lake.

        Raises:
            CatalogError: Metadata cannot be read, or the catalog cannot be written.
        """
        self._lake.store.backend.require_writer()
        remove_leftovers(self._lake)
        survey, plan = self._decided()
        report = SweepReport(plan, orphans.Orphans((), {}), done=True, branches=self._sizes(plan))
        older_than = self._snapshots_before(survey.now)
        last_seen = {branch.name: branch.last_seen for branch in survey.branches}
        for branch in plan.branches:
            with _reported(report, f"branch {branch.name}"):
                swept = removal.sweep_branch(
                    self._lake,
                    branch.name,
                    run_id=self._run_id,
                    reason=branch.reason,
                    older_than=older_than,
                    last_seen=last_seen[branch.name],
                )
                report.snapshots += swept.snapshots
                report.dead += [leasing.describe(lease, lives=False) for lease in swept.leases]
        self._sweep_tables(report, older_than)
        self._record_dead(report)
        self._delete_manifests(report)
        if files:
            survey = take_survey(self._lake)
            rows = survey.rows
            documents = dict(zip(rows, self._lake.store.documents(rows), strict=True))
            found = self._find(survey, documents)
            report.found = orphans.Orphans((), found.left_alone)
            with _reported(report, "files"):
                try:
                    for folder in orphans.delete(self._lake, found, documents):
                        folders = (*report.found.folders, folder)
                        report.found = replace(report.found, folders=folders)
                except SparkwapError:
                    if report.found.folders:
                        self._record_files(report)
                    raise
                self._record_files(report)
        return report

    def files_are_due(self) -> bool:
        """Return whether no sweep of the last day has looked for files."""
        times = [r["swept_at"] for r in self._lake.ledger.rows("sweeps") if r["what"] == "files"]
        now = datetime.fromtimestamp(self._lake.leases.now(), UTC)
        return not times or now - max(times) >= _FILES_EVERY

    # -- steps -----------------------------------------------------------------------------------

    def _decided(self) -> tuple[Survey, SweepPlan]:
        survey = take_survey(self._lake)
        return survey, decide(
            survey.branches, survey.tags, self._limits, survey.now, survey.manifests
        )

    def _snapshots_before(self, now: datetime) -> datetime:
        return now - timedelta(days=min(self._limits.run_days, self._limits.named_days))

    def _find(
        self,
        survey: Survey,
        documents: Mapping[Pointer, md.Document],
        to_remove: Sequence[md.Document] = (),
    ) -> orphans.Orphans:
        days = None if survey.replayed else self._retention
        return orphans.find(
            self._lake,
            documents,
            roots_since=None if days is None else survey.now - timedelta(days=days),
            written_before=orphans.cutoff(
                survey.now, self._limits.file_days, [lease.began for lease in survey.live]
            ),
            to_remove=to_remove,
        )

    def _sizes(self, plan: SweepPlan) -> dict[str, int]:
        to_remove = {branch.name for branch in plan.branches}
        return {
            branch.branch: len(branch.tables) + len(branch.side)
            for branch in self._lake.branches.all()
            if branch.branch in to_remove
        }

    def _sweep_tables(self, report: SweepReport, older_than: datetime) -> None:
        """Remove tags, and the snapshots that earlier discards have left."""
        survey = take_survey(self._lake)
        tags = _by_table(report.plan.tags)
        for row in survey.rows:
            if row.kind != "table" or row.identifier[0] in survey.side_schemas:
                continue
            document, name = self._lake.store.load(row.location), ".".join(row.identifier)
            idle = removal.unreferenced(document, (), _ms(older_than))
            # A change of refs makes the commit of a writer fail, even on another branch.
            if _used(survey, document) or not (tags.get(name) or idle):
                continue
            with _reported(report, name):
                _, count = removal.sweep_table(
                    self._lake,
                    row.identifier,
                    tags.get(name, ()),
                    run_id=self._run_id,
                    reason="past its age",
                    older_than=older_than,
                )
                report.snapshots += count

    def _record_dead(self, report: SweepReport) -> None:
        """Record the runs that died, and release their leases."""
        now = self._lake.leases.now()
        for lease in self._lake.leases.all():
            if not leasing.alive(lease, now):
                text = leasing.describe(lease, lives=False)
                self._lake.ledger.append(LedgerRows("runs", [removal.died(lease, text)]))
                self._lake.leases.release(lease.run_id)
                report.dead.append(text)

    def _delete_manifests(self, report: SweepReport) -> None:
        hashes = report.plan.manifests
        if not hashes:
            return
        row = {
            "run_id": self._run_id,
            "swept_at": datetime.now(UTC),
            "what": "manifests",
            "reason": f"no use for {counted(self._limits.manifest_days, 'day')}",
            "count": len(hashes),
        }
        with _reported(report, "manifests"):
            self._lake.ledger.forget_manifests(hashes)
            self._lake.ledger.append(LedgerRows("sweeps", [row]))

    def _record_files(self, report: SweepReport) -> None:
        common = {"run_id": self._run_id, "swept_at": datetime.now(UTC), "what": "files"}
        rows = [
            {**common, "folder": folder.path, "count": len(folder.files), "bytes": folder.size}
            for folder in report.found.folders
        ]
        self._lake.ledger.append(LedgerRows("sweeps", rows or [{**common, "count": 0, "bytes": 0}]))


def end_of_run(lake: Lake, run_id: str, settings: GateSettings) -> list[str]:
    """Sweep after a run: branches and tags each time, files once a day.

    Args:
        lake: The lake.
        run_id: The run that has ended and released its lease.
        settings: Its settings.

    Returns:
        The lines to print; none if nothing was removed. A sweep that fails prints a line and does
        not fail the run; the next sweep continues.
    """
    work = Sweeper(
        lake,
        run_id=run_id,
        limits=settings.sweep_limits,
        retention_days=settings.tag_retention_days,
    )
    try:
        report = work.sweep(files=work.files_are_due())
    except Exception as error:
        return [f"  The sweep after the run failed; readers of main see no change: {error}"]
    return lines(report, "") if report.anything or report.problems else []


# -- the report as text --------------------------------------------------------------------------


def lines(report: SweepReport, again: str) -> list[str]:
    """Return a report as lines of text.

    Args:
        report: The report.
        again: The command that carries out a preview; empty for a sweep at the end of a run.
    """
    found: list[str] = []
    plan = report.plan
    for branch in plan.branches:
        count = report.branches.get(branch.name, 0)
        found.append(f"  branch   {branch.name}   {counted(count, 'table')}   {branch.reason}")
    found += _shortened([f"  tag      {tag.table} {tag.name}   {tag.reason}" for tag in plan.tags])
    if report.snapshots:
        found.append(
            f"  history  {counted(report.snapshots, 'snapshot')} that no branch and no tag reaches"
        )
    if plan.manifests:
        found.append(
            f"  code     {counted(len(plan.manifests), 'manifest')} that no open branch and no "
            "table's latest publish uses"
        )
    if report.found.count:
        folders = counted(len(report.found.folders), "folder")
        size = f"{report.found.size:,} bytes"
        found.append(
            f"  files    {counted(report.found.count, 'file')}, {size}, in {folders}, to which "
            "nothing refers"
        )
        found += _shortened(
            [
                f"           {folder.path}   {counted(len(folder.files), 'file')}, "
                f"{folder.size:,} bytes"
                for folder in report.found.folders
            ]
        )
    found += [f"  died     {run}" for run in report.dead]
    kept = [f"  kept     {branch.name}   {branch.reason}" for branch in plan.kept]
    kept += [f"  kept     {path}   {why}" for path, why in report.found.left_alone.items()]
    problems = [f"  not done {problem}" for problem in report.problems]
    return [_head(report), *found, *_shortened(kept), *problems, *_next(report, again)]


def _head(report: SweepReport) -> str:
    if not report.anything:
        return "There is nothing to sweep."
    if not report.done:
        return "A sweep would remove (nothing was changed):"
    return "Swept; readers of main see no change:"


def _next(report: SweepReport, again: str) -> Iterable[str]:
    if not report.done and report.anything:
        yield f"  Next: sweep   {again}"
    if report.problems:
        # After a run, the next commands are those of the run.
        how = "Next: sweep again" if again else "The next sweep tries again"
        yield f"  {how}; the other removals are done"


def _shortened(found: Sequence[str]) -> list[str]:
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], *([f"           and {more:,} more"] if more > 0 else [])]


@contextmanager
def _reported(report: SweepReport, name: str) -> Iterator[None]:
    """Add an error of the block to the report instead of raising it."""
    try:
        yield
    except SparkwapError as error:
        report.problems.append(f"{name}: {error}")


def _by_table(tags: Iterable[Swept]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for tag in tags:
        found.setdefault(str(tag.table), []).append(tag.name)
    return found


def _used(survey: Survey, document: md.Document) -> bool:
    """Return whether a living run has a branch on a table, or reads former states of any."""
    refs = md.refs_of(document)
    return survey.replayed or any(lease.branch in refs for lease in survey.live)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
