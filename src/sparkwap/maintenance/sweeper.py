"""A sweep: surveys the catalog, decides, removes branches and tags, deletes files, reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sparkwap.catalog import LedgerRows
from sparkwap.catalog import lease as leasing
from sparkwap.catalog import metadata as md
from sparkwap.catalog.pointers import Pointer
from sparkwap.core.errors import SparkwapError
from sparkwap.gate.settings import GateSettings, Limits
from sparkwap.maintenance import orphans, removal
from sparkwap.maintenance.decision import SweepPlan, Swept, decide
from sparkwap.maintenance.survey import Alive, Survey, take_survey
from sparkwap.publish.lake import Lake

_SHOWN = 20
_FILES_EVERY = timedelta(days=1)


@dataclass
class SweepReport:
    """What a sweep did, or would do.

    Attributes:
        plan: What was decided.
        found: The files.
        done: False if nothing was changed.
        branches: Branch -> number of tables and views on it.
        snapshots: Number of snapshots of runs that nothing reached any more.
        dead: Runs that died, in words.
        problems: What could not be taken away, and why; the rest was.
        looked_for_files: Whether files were looked for at all.
    """

    plan: SweepPlan
    found: orphans.Orphans
    done: bool
    branches: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0
    dead: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    looked_for_files: bool = True

    @property
    def anything(self) -> bool:
        """Whether something was, or would be, taken away."""
        plan = self.plan
        taken = plan.branches or plan.tags or plan.manifests
        return bool(taken or self.snapshots or self.found.count)


class Sweeper:
    """Sweeps one lake.

    Args:
        lake: The lake.
        run_id: The run that sweeps, for the ledger.
        limits: The ages.
        retention_days: For how many days a publish can be rolled back, so that what it replaced
            stays; None for ever.
        alive: Whether the run of a lease lives, at the catalog's time.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        run_id: str,
        limits: Limits,
        retention_days: int | None,
        alive: Alive = leasing.alive,
    ) -> None:
        self._lake = lake
        self._run_id = run_id
        self._limits = limits
        self._retention = retention_days
        self._alive = alive

    def look(self) -> SweepReport:
        """What a sweep would take away now; changes nothing.

        Raises:
            CatalogError: Some metadata cannot be read.
        """
        survey, plan = self._decided()
        gone = {branch.name for branch in plan.branches}
        tags = _by_table(plan.tags)
        before_ms = _ms(self._snapshots_before(survey.now))
        documents: dict[Pointer, md.Document] = {}
        going: list[md.Document] = []
        snapshots = 0
        for row in survey.rows:
            owner = survey.side_schemas.get(row.identifier[0])
            document = self._lake.store.load(row.location)
            if owner in gone:
                going.append(document)
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
            self._find(survey, documents, going),
            done=False,
            branches=self._sizes(plan),
            snapshots=snapshots,
            dead=[leasing.told(lease, lives=False) for lease, lives in survey.leases if not lives],
        )

    def sweep(self, *, files: bool = True) -> SweepReport:
        """Take away what is to go: branch by branch, table by table, then the files.

        What cannot be removed is listed in the report, and does not stop the rest.

        Args:
            files: Also look for files to which nothing refers. Reads all manifests of the lake.

        Raises:
            CatalogError: Some metadata cannot be read.
        """
        survey, plan = self._decided()
        report = SweepReport(plan, orphans.Orphans((), {}), done=True, branches=self._sizes(plan))
        older_than = self._snapshots_before(survey.now)
        for branch in plan.branches:
            with _told(report, f"branch {branch.name}"):
                swept = removal.sweep_branch(
                    self._lake,
                    branch.name,
                    run_id=self._run_id,
                    reason=branch.reason,
                    older_than=older_than,
                    alive=self._alive,
                )
                report.snapshots += swept.snapshots
                report.dead += [leasing.told(lease, lives=False) for lease in swept.leases]
        self._sweep_tables(report, older_than)
        self._bury(report)
        self._forget_manifests(report)
        report.looked_for_files = files
        if files:
            survey = take_survey(self._lake, self._alive)
            documents = {row: self._lake.store.load(row.location) for row in survey.rows}
            found = self._find(survey, documents)
            report.found = orphans.Orphans(found.folders, found.left_alone)
            with _told(report, "files"):
                gone = orphans.delete(self._lake, found, documents)
                report.found = orphans.Orphans(tuple(gone), found.left_alone)
                self._record_files(report)
        return report

    def files_are_due(self) -> bool:
        """Whether files were not looked for within the last day."""
        times = [r["swept_at"] for r in self._lake.ledger.rows("sweeps") if r["what"] == "files"]
        now = datetime.fromtimestamp(self._lake.leases.now(), UTC)
        return not times or now - max(times) >= _FILES_EVERY

    # -- steps -----------------------------------------------------------------------------------

    def _decided(self) -> tuple[Survey, SweepPlan]:
        survey = take_survey(self._lake, self._alive)
        return survey, decide(
            survey.branches, survey.tags, self._limits, survey.now, survey.manifests
        )

    def _snapshots_before(self, now: datetime) -> datetime:
        return now - timedelta(days=min(self._limits.run_days, self._limits.named_days))

    def _find(
        self,
        survey: Survey,
        documents: Mapping[Pointer, md.Document],
        going: Sequence[md.Document] = (),
    ) -> orphans.Orphans:
        days = self._retention
        return orphans.find(
            self._lake,
            documents,
            roots_since=None if days is None else survey.now - timedelta(days=days),
            written_before=orphans.cutoff(
                survey.now, self._limits.file_days, [lease.began for lease in survey.live]
            ),
            going=going,
        )

    def _sizes(self, plan: SweepPlan) -> dict[str, int]:
        going = {branch.name for branch in plan.branches}
        return {
            one.branch: len(one.tables) + len(one.side)
            for one in self._lake.branches.all()
            if one.branch in going
        }

    def _sweep_tables(self, report: SweepReport, older_than: datetime) -> None:
        """Take tags away, and the snapshots that earlier discards have left behind."""
        survey = take_survey(self._lake, self._alive)
        tags = _by_table(report.plan.tags)
        for row in survey.rows:
            if row.kind != "table" or row.identifier[0] in survey.side_schemas:
                continue
            document, name = self._lake.store.load(row.location), ".".join(row.identifier)
            idle = removal.unreferenced(document, (), _ms(older_than))
            # Changes of refs disturb a writer, even one on another branch.
            if _used(survey, document) or not (tags.get(name) or idle):
                continue
            with _told(report, name):
                _, count = removal.sweep_table(
                    self._lake,
                    row.identifier,
                    tags.get(name, ()),
                    run_id=self._run_id,
                    reason="past its age",
                    older_than=older_than,
                )
                report.snapshots += count

    def _bury(self, report: SweepReport) -> None:
        """Record the runs that died, and release their leases."""
        now = self._lake.leases.now()
        for lease in self._lake.leases.all():
            if not self._alive(lease, now):
                words = leasing.told(lease, lives=False)
                self._lake.ledger.append(
                    LedgerRows("runs", [removal.died(lease, words)]),
                )
                self._lake.leases.release(lease.run_id)
                report.dead.append(words)

    def _forget_manifests(self, report: SweepReport) -> None:
        hashes = report.plan.manifests
        if not hashes:
            return
        row = {
            "run_id": self._run_id,
            "swept_at": datetime.now(UTC),
            "what": "manifests",
            "reason": f"no use for {_count(self._limits.manifest_days, 'day')}",
            "count": len(hashes),
        }
        with _told(report, "manifests"):
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
        run_id: The run that has ended; it holds no lease any more.
        settings: Its settings.

    Returns:
        What to print; nothing where nothing was taken away. A sweep that fails is told, and no
        reason for the run to fail: the next one goes on.
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
        return [f"  The sweep after the run failed, and changed no table that is read: {error}"]
    return lines(report, "") if report.anything or report.problems else []


# -- telling -------------------------------------------------------------------------------------


def lines(report: SweepReport, again: str) -> list[str]:
    """A report as plain text, line by line.

    Args:
        report: The report.
        again: The command that does what a look has told.
    """
    told: list[str] = []
    plan = report.plan
    for branch in plan.branches:
        count = report.branches.get(branch.name, 0)
        told.append(f"  branch   {branch.name}   {_count(count, 'table')}   {branch.reason}")
    told += _shortened([f"  tag      {one.table} {one.name}   {one.reason}" for one in plan.tags])
    if report.snapshots:
        told.append(
            f"  history  {_count(report.snapshots, 'snapshot')} that no branch and no tag reaches"
        )
    if plan.manifests:
        told.append(
            f"  code     {_count(len(plan.manifests), 'manifest')} that no open branch and no "
            "table's latest publish has"
        )
    if report.found.count:
        folders = _count(len(report.found.folders), "folder")
        size = f"{report.found.size:,} bytes"
        told.append(
            f"  files    {_count(report.found.count, 'file')}, {size}, in {folders}, to which "
            "nothing refers"
        )
        told += _shortened(
            [
                f"           {folder.path}   {_count(len(folder.files), 'file')}, "
                f"{folder.size:,} bytes"
                for folder in report.found.folders
            ]
        )
    told += [f"  died     {words}" for words in report.dead]
    kept = [f"  kept     {branch.name}   {branch.reason}" for branch in plan.kept]
    kept += [f"  kept     {path}   {why}" for path, why in report.found.left_alone.items()]
    problems = [f"  not done {problem}" for problem in report.problems]
    return [_head(report), *told, *_shortened(kept), *problems, *_next(report, again)]


def _head(report: SweepReport) -> str:
    if not report.anything:
        return "Nothing to sweep."
    if not report.done:
        return "A sweep would take away (nothing has changed):"
    return "Swept; readers of main see no change:"


def _next(report: SweepReport, again: str) -> Iterable[str]:
    if not report.done and report.anything:
        yield f"  Next: do it   {again}"
    if report.problems:
        yield "  Next: sweep again; what is done stays done"


def _shortened(told: Sequence[str]) -> list[str]:
    more = len(told) - _SHOWN
    return [*told[:_SHOWN], *([f"           and {more:,} more"] if more > 0 else [])]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def _told(report: SweepReport, what: str) -> Iterator[None]:
    """Puts an error into the report instead of raising it."""
    try:
        yield
    except SparkwapError as error:
        report.problems.append(f"{what}: {error}")


def _by_table(tags: Iterable[Swept]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for tag in tags:
        found.setdefault(str(tag.table), []).append(tag.name)
    return found


def _used(survey: Survey, document: md.Document) -> bool:
    """Whether a living run has a branch on a table."""
    refs = md.refs_of(document)
    return any(lease.branch in refs for lease in survey.live)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
