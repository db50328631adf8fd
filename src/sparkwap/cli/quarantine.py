"""``sparkwap quarantine``: list bad rows, and read them again.

The raw tables keep bad rows with their text. A replay reads these texts again with the current
landing entry and adds the rows that are good now to the log, in a gated dbt build of the raw model
and all models downstream. It removes nothing: the log shows when a row was bad, and when a replay
accepted it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of, say
from sparkwap.core.errors import ConfigError
from sparkwap.core.text import counted
from sparkwap.landing.entry import REPLAY
from sparkwap.landing.raw_models import BadRow, RawModel, bad_rows, raw_models
from sparkwap.runs.results import RunResults

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

_SHOWN = 20
_TEXT_SHOWN = 120


@dataclass(frozen=True)
class ModelRows:
    """The rows of a raw model in quarantine."""

    model: str
    rows: tuple[BadRow, ...]


@dataclass(frozen=True)
class QuarantineList:
    """The raw models that have rows in quarantine."""

    models: tuple[ModelRows, ...]


@dataclass(frozen=True)
class QuarantineReplay:
    """A replay: the number of rows in quarantine before and after it, and its run, if any."""

    before: int
    after: int
    run: RunResults | None = None


def register_quarantine(commands: Commands) -> None:
    """Register ``sparkwap quarantine list|replay``."""
    text = "bad rows of landing files: list them, read them again"
    quarantine = commands.add_parser("quarantine", help=text, description=text)
    actions = quarantine.add_subparsers(title="actions", metavar="action", required=True)
    handlers = {
        "list": (_list, "list the rows in quarantine"),
        "replay": (_replay, "read them again with the current landing entry, in a gated dbt build"),
    }
    for name, (handler, help_) in handlers.items():
        parser = actions.add_parser(name, help=help_, description=help_)
        parser.add_argument(
            "model", nargs="*", help="raw model, or its entity (default: all with such rows)"
        )
        add_dbt_options(parser)
        parser.set_defaults(handler=handler)


# ---------------------------------------------------------------- decisions


def chosen(models: Sequence[RawModel], names: Sequence[str]) -> list[RawModel]:
    """Return the raw models with these names, entities or quarantine models; all without names.

    Raises:
        ConfigError: no raw model has a name.
    """
    known: dict[str, RawModel] = {}
    for model in models:
        bare = model.name.removeprefix("raw_")
        known |= dict.fromkeys((model.name, f"quarantine_{bare}", bare, model.entry.entity), model)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"There is no raw model {', '.join(unknown)}. Nothing was done. "
            f"The raw models are: {', '.join(m.name for m in models) or 'none'}."
        )
    return [known[name] for name in names] if names else list(models)


def listing(found: Sequence[tuple[RawModel, Sequence[BadRow]]]) -> list[str]:
    """Return the lines that list the rows in quarantine."""
    lines = []
    for model, rows in found:
        lines.append(f"{model.name}: {counted(len(rows), 'row')} in quarantine")
        for row in sorted(rows)[:_SHOWN]:
            lines.append(f"  {row.file}, line {row.line}: {row.reason}")
            lines.append(f"    {_short(row.text)}")
        if len(rows) > _SHOWN:
            lines.append(f"  and {len(rows) - _SHOWN:,} more")
    return lines or ["No row is in quarantine."]


def replay_summary(before: int, after: int, code: int) -> str:
    """Return the message after a replay."""
    if code:
        return (
            f"dbt ended with code {code}, so the replay is not published as a whole; "
            f"{before - after:,} of {counted(before, 'row')} accepted. The output of dbt above has "
            f"the reason. To see the open branches: {next_command.operation('wap_status')}"
        )
    if before == after:
        return (
            f"No row of {before:,} was accepted: the rows are still bad, or the gate held the "
            f"run. To see a held branch: {next_command.operation('wap_status')}"
        )
    stay = "stays" if after == 1 else "stay"
    see = next_command.sparkwap("quarantine list")
    rest = f"; {counted(after, 'row')} {stay} in quarantine: {see}"
    return f"{counted(before - after, 'row')} of {before:,} accepted{rest if after else ''}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_SHOWN else line[: _TEXT_SHOWN - 3] + "..."


# ---------------------------------------------------------------- the commands


def _models(call: DbtCall, arguments: argparse.Namespace) -> list[RawModel]:
    manifest = call.manifest(next_command.sparkwap(arguments.command))
    return chosen(raw_models(manifest, call.project_dir), arguments.model)


def _list(arguments: argparse.Namespace) -> CommandEnd:
    call = call_of(arguments)
    models, lake = _models(call, arguments), call.lake()
    found = [(model, rows) for model in models if (rows := bad_rows(lake, model))]
    print("\n".join(listing(found)))
    listed = tuple(ModelRows(model.name, tuple(sorted(rows))) for model, rows in found)
    return CommandEnd(result=QuarantineList(listed))


def _replay(arguments: argparse.Namespace) -> CommandEnd:
    call = call_of(arguments)
    return replay(call, _models(call, arguments), say)


def replay(call: DbtCall, models: Sequence[RawModel], tell: Callable[[str], None]) -> CommandEnd:
    """Read the quarantined rows of some models again."""
    lake = call.lake()
    waiting = {model.name: len(bad_rows(lake, model)) for model in models}
    names = [name for name, count in waiting.items() if count]
    if not names:
        tell("no row is in quarantine; nothing to do")
        return CommandEnd(result=QuarantineReplay(0, 0))
    selected = [f"{name}+" for name in names]
    end = call.run("build", "--select", *selected, **{REPLAY: "true"})
    before, after = sum(waiting.values()), sum(len(bad_rows(lake, model)) for model in models)
    tell(replay_summary(before, after, end.code))
    return CommandEnd(end.outcome, QuarantineReplay(before, after, end.result), end.message)
