"""``sparkwap quarantine``: see what could not be used, and try it again.

The raw tables keep bad rows with their text. A replay reads these texts again by the present
landing entry and adds the rows that are good now to the log, in a gated dbt build of the raw model
and all models downstream. It removes nothing: the log shows when a row was bad, and when it came
back.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, call_of, say
from sparkwap.core.errors import ConfigError
from sparkwap.landing.entry import REPLAY
from sparkwap.landing.raw_models import BadRow, RawModel, bad_rows, raw_models

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_SHOWN = 20
_TEXT_SHOWN = 120


def register_quarantine(commands: Commands) -> None:
    """``sparkwap quarantine list|replay``."""
    text = "rows that could not be used: see them, try them again"
    quarantine = commands.add_parser("quarantine", help=text, description=text)
    actions = quarantine.add_subparsers(title="actions", metavar="action", required=True)
    what = {
        "list": (_list, "list the rows in quarantine"),
        "replay": (_replay, "read them again by the present landing entry, in a gated dbt build"),
    }
    for name, (handler, help_) in what.items():
        parser = actions.add_parser(name, help=help_, description=help_)
        parser.add_argument(
            "model", nargs="*", help="raw model, or its entity (default: all that have such rows)"
        )
        add_dbt_options(parser)
        parser.set_defaults(handler=handler)


# ---------------------------------------------------------------- decisions


def chosen(models: Sequence[RawModel], names: Sequence[str]) -> list[RawModel]:
    """The models with these names, or names of their entities or quarantine models; all for none.

    Raises:
        ConfigError: a name is none of them.
    """
    known: dict[str, RawModel] = {}
    for model in models:
        bare = model.name.removeprefix("raw_")
        known |= dict.fromkeys((model.name, f"quarantine_{bare}", bare, model.entry.entity), model)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"No raw model is called {', '.join(unknown)}. Nothing was done. "
            f"There are: {', '.join(m.name for m in models) or 'none'}."
        )
    return [known[name] for name in names] if names else list(models)


def listing(found: Sequence[tuple[RawModel, Sequence[BadRow]]]) -> list[str]:
    """What to print of the rows in quarantine."""
    lines = []
    for model, rows in found:
        lines.append(f"{model.name}: {_rows(len(rows))} in quarantine")
        for row in sorted(rows)[:_SHOWN]:
            lines.append(f"  {row.file}, line {row.line}: {row.reason}")
            lines.append(f"    {_short(row.text)}")
        if len(rows) > _SHOWN:
            lines.append(f"  and {len(rows) - _SHOWN:,} more")
    return lines or ["No row is in quarantine."]


def replay_summary(before: int, after: int, code: int) -> str:
    """What to say of a replay."""
    if code:
        return (
            f"Nothing was brought back (dbt ended with code {code}); readers of main see the state "
            "before it. See why: dbt run-operation wap_status"
        )
    back = before - after
    stay = f"; {_rows(after)} stay in quarantine: sparkwap quarantine list" if after else ""
    return f"{_rows(back)} of {before:,} brought back{stay}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _TEXT_SHOWN else one[: _TEXT_SHOWN - 3] + "..."


# ---------------------------------------------------------------- the commands


def _list(arguments: argparse.Namespace) -> int:
    call = call_of(arguments)
    models = chosen(raw_models(call.manifest(), call.project_dir), arguments.model)
    lake = call.lake()
    found = [(model, bad_rows(lake, model)) for model in models]
    print("\n".join(listing([(model, rows) for model, rows in found if rows])))
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    call = call_of(arguments)
    models = chosen(raw_models(call.manifest(), call.project_dir), arguments.model)
    return replay(call, models, say)


def replay(call: DbtCall, models: Sequence[RawModel], tell: Callable[[str], None]) -> int:
    """Read the quarantined rows of some models again; returns dbt's exit code."""
    lake = call.lake()
    waiting = {model.name: len(bad_rows(lake, model)) for model in models}
    names = [name for name, count in waiting.items() if count]
    if not names:
        tell("no row is in quarantine; nothing to do")
        return 0
    selected = [f"{name}+" for name in names]
    code = call.run("build", "--select", *selected, **{REPLAY: "true"})
    after = sum(len(bad_rows(lake, model)) for model in models)
    tell(replay_summary(sum(waiting.values()), after, code))
    return code
