"""``sparkwap metrics``."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of, say
from sparkwap.core.errors import ConfigError

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands


@dataclass(frozen=True)
class MetricsResult:
    """The metrics as text, the file that was replaced, and what could not be read, and why."""

    file: Path | None
    text: str
    faults: Mapping[str, str]


def register_metrics(commands: Commands) -> None:
    """Register ``sparkwap metrics``."""
    text = "write runs, publishes, open branches and landing lag as Prometheus metrics"
    parser = commands.add_parser(
        "metrics",
        help=text,
        description=f"{text}, without Spark",
        epilog="What cannot be read is a metric too (sparkwap_part_up, sparkwap_landing_up), and "
        "is told on standard error; the exit code stays 0.",
    )
    parser.add_argument(
        "--file",
        type=Path,
        help="the file to replace, such as one ending in .prom for node_exporter (default: print)",
    )
    parser.add_argument(
        "--own",
        action="store_true",
        help="leave out other projects and targets of the lake, where each writes its own file",
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=_metrics)


def _metrics(parsed: argparse.Namespace) -> CommandEnd:
    _require_client()
    # Imported here, because they import PyArrow and the library.
    from sparkwap.metrics import exposition
    from sparkwap.metrics.decide import samples
    from sparkwap.metrics.gather import gather

    facts = gather(call_of(parsed))
    for name, fault in facts.faults.items():
        say(f"{name} cannot be read: {fault}")
    found = samples(facts, own=parsed.own)
    text = exposition.text(found)
    if parsed.file is None:
        print(text, end="")
    else:
        exposition.write(found, parsed.file)
    return CommandEnd(result=MetricsResult(parsed.file, text, facts.faults))


def _require_client() -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigError(
            "The metrics need the package prometheus-client, which is not installed. Nothing was "
            "read or written. Install it: pip install prometheus-client, or with sparkwap: "
            f"{next_command.install('metrics')}"
        )
