"""``sparkwap stream``: one gated build after the other, as long as topics get messages."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sparkwap.cli.build import messages_listed, selects
from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, LakePlace, add_dbt_command, parse_call, say
from sparkwap.core.errors import ConfigError
from sparkwap.core.redaction import redact
from sparkwap.landing.raw_models import RawModel, position, raw_models, unread_topics
from sparkwap.runs import replay_moment
from sparkwap.runs.results import RunResults

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

LONGEST_WAIT_SECONDS = 600.0
_MOST_DOUBLINGS = 20
"""More of them would not change a wait, and overflow in the end."""


@dataclass(frozen=True)
class StreamBuild:
    """One gated build of ``sparkwap stream``.

    Attributes:
        models: The raw models that it read.
        messages: The number of unread messages before it, by raw model.
        run: What the gate decided; None if dbt ended before.
    """

    models: tuple[str, ...]
    messages: Mapping[str, int]
    run: RunResults | None


def register_stream(commands: Commands) -> None:
    """Register ``sparkwap stream``."""
    text = "build what is downstream of Kafka topics whenever they have unread messages"
    add_dbt_command(
        commands,
        "stream",
        text,
        "--every SECONDS",
        "It runs until it is stopped (Ctrl-C, SIGTERM). Each build is one gated dbt build of the "
        "raw models that have unread messages and everything downstream. After a build that is not "
        "published, it waits twice as long before each further try, at most ten minutes. SECONDS "
        "is the time between two checks of the topics (default: 30).",
        _parsed,
    )


def _parsed(parsed: argparse.Namespace) -> CommandEnd:
    own = argparse.ArgumentParser(prog="sparkwap stream", add_help=False, allow_abbrev=False)
    own.add_argument("--every", type=_seconds, default=30.0)
    given, rest = own.parse_known_args(parsed.arguments)
    stream(given.every, rest, parsed.emit)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        seconds = float(text)
        if 0 < seconds <= LONGEST_WAIT_SECONDS:
            return seconds
    raise argparse.ArgumentTypeError(
        f"'{text}' is not a number of seconds above 0 and up to {LONGEST_WAIT_SECONDS:g}"
    )


def pause(every: float, failures: int) -> float:
    """Return the seconds until the next look at the topics.

    Args:
        every: the seconds between two looks.
        failures: the number of builds since the last one that was published.
    """
    doublings = min(failures, _MOST_DOUBLINGS)
    return max(every, min(every * 2.0**doublings, LONGEST_WAIT_SECONDS))


def stream(
    every: float,
    arguments: Sequence[str],
    emit: Callable[[CommandEnd], None],
    tell: Callable[[str], None] = say,
    sleep: Callable[[float], None] = time.sleep,
) -> NoReturn:
    """Build whenever topics have unread messages, until a signal ends the process.

    Args:
        every: seconds between two looks at the topics.
        arguments: more arguments of ``dbt build``.
        sleep: waits, in seconds.
    """
    call = parse_call(arguments)
    replay_moment.refuse(call.variables, "sparkwap stream")
    if selects(call.build):
        raise ConfigError(
            "sparkwap stream selects the nodes itself, so it takes no --select or --exclude. "
            "Nothing was built. Leave out the option."
        )
    topics, lake = _topics(call), call.lake()
    if not topics:
        raise ConfigError(
            "No raw model reads a topic, so there is nothing to stream. Nothing was built. For "
            f"files, call: {next_command.sparkwap('build')}"
        )
    named = ", ".join(dict.fromkeys(model.entry.topic for model in topics))
    tell(f"watching {named}, every {every:g} s; Ctrl-C stops")
    failures, told, again = 0, list[str](), frozenset[str]()
    while True:
        try:
            if failures or told:
                topics = _topics(call)  # the project may have been corrected
            waiting, faults = unread_topics(lake, topics)
            if faults != told:
                for fault in faults:
                    tell(fault)
                told = faults
            chosen = [model for model in topics if model.name in {*waiting, *again}]
            if chosen:
                tell(messages_listed(waiting) or f"again: {', '.join(m.name for m in chosen)}")
                end, published = _build(call, lake, chosen, waiting)
                emit(end)
                again = frozenset() if published else frozenset(m.name for m in chosen)
                failures = 0 if published else failures + 1
        except Exception as error:  # of the catalog, the store, the project: they may pass
            tell(redact(f"{type(error).__name__}: {error}"))
            failures += 1
        if failures:
            tell(
                "the last try failed, or was not published; next try in "
                f"{pause(every, failures):g} s"
            )
        sleep(pause(every, failures))


def _topics(call: DbtCall) -> list[RawModel]:
    manifest = call.manifest(next_command.sparkwap("stream"))
    return [m for m in raw_models(manifest, call.project_dir) if m.entry.topic]


def _build(
    call: DbtCall, lake: LakePlace, models: Sequence[RawModel], waiting: Mapping[str, int]
) -> tuple[CommandEnd, bool]:
    """Build models and everything downstream; return its end, and whether it need not be repeated.

    The exit code is not enough: the gate may hold what dbt has built without an error.
    """
    before = {model.name: position(lake, model) for model in models if model.name in waiting}
    end = call.run("build", *call.build, "--select", *(f"{model.name}+" for model in models))
    moved = all(position(lake, m) != before[m.name] for m in models if m.name in before)
    result = StreamBuild(tuple(m.name for m in models), waiting, end.result)
    return CommandEnd(end.outcome, result, end.message), end.code == 0 and moved
