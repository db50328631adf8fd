"""The command ``sparkwap``: a thin layer over the services.

A function registers each command: it adds a parser to ``commands`` and sets its ``handler``, which
takes the parsed arguments and returns a `CommandEnd`. For a new command, add such a function to
``COMMANDS``, and its result to ``RESULTS`` of ``scripts/output_schema.py``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sparkwap import __version__
from sparkwap.alerts.command import register_alerts
from sparkwap.cli.build import register_build
from sparkwap.cli.operations import register_operations
from sparkwap.cli.quarantine import register_quarantine
from sparkwap.cli.source import register_source
from sparkwap.cli.stream import register_stream
from sparkwap.core.command_end import EXIT_CODES, CommandEnd
from sparkwap.core.dbt_cli import add_dbt_options, call_of, say, terminated
from sparkwap.core.errors import ConfigError, SparkwapError
from sparkwap.core.redaction import redact
from sparkwap.gate.doctor import Finding
from sparkwap.metrics.command import register_metrics
from sparkwap.page.command import register_page
from sparkwap.plan.command import register_plan
from sparkwap.pr.commands import register_pr
from sparkwap.report.command import register_report

if TYPE_CHECKING:
    from sparkwap.core.command_end import Outcome
    from sparkwap.core.dbt_cli import Commands

FORMATS = ("text", "json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Text for people is printed on standard output, errors on standard error. With ``--output json``,
    standard output has the document of the command alone, and standard error all text.
    """
    given, out = list(sys.argv[1:] if arguments is None else arguments), sys.stdout
    as_json = "--output=json" in given or ("--output", "json") in pairwise(given)
    command, lost = "", list[OSError]()

    def emit(end: CommandEnd) -> None:
        if as_json and not lost:
            try:
                print(end.document(command), file=out, flush=True)
            except OSError as error:
                # Nobody has read the document, so no exit code may stand for it.
                lost.append(error)
                print(f"sparkwap: the document cannot be written: {error}", file=sys.stderr)
                with suppress(OSError):
                    out.close()

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # Else dbt would go on without this process; and process 1 of a container ignores it.
        with suppress(ValueError):  # in another thread
            signal.signal(signal.SIGTERM, terminated)
    try:
        parsed = _parse(given)
        command, as_json = parsed.command, parsed.output == "json"
        parsed.emit = emit
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            end: CommandEnd = parsed.handler(parsed)
    except SparkwapError as error:
        print(f"sparkwap: {error}", file=sys.stderr)
        end = CommandEnd(error.outcome, message=str(error))
    except KeyboardInterrupt:
        end = CommandEnd("interrupted")
    except SystemExit as error:
        if error.code:
            emit(CommandEnd("usage", message="Wrong arguments; standard error has the message."))
        raise
    except Exception as error:
        # Python's own exit code would be that of a rejected run.
        print(redact(traceback.format_exc()), end="", file=sys.stderr)
        end = CommandEnd("failed", message=f"{type(error).__name__}: {error}")
    emit(end)
    return EXIT_CODES["failed"] if lost else end.exit_code


def _parse(given: Sequence[str]) -> argparse.Namespace:
    parsed = _parser().parse_args(given)
    if not hasattr(parsed, "output"):  # its arguments are those of dbt
        own = argparse.ArgumentParser(
            prog=f"sparkwap {parsed.command}", add_help=False, allow_abbrev=False
        )
        own.add_argument("--output", choices=FORMATS, default="text")
        parsed.arguments = own.parse_known_args(parsed.arguments, parsed)[1]
    return parsed


def _finish(parser: argparse.ArgumentParser) -> None:
    """Set the name of each command, and give it the option ``--output``."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for name, one in ((name, one) for action in inner for name, one in action.choices.items()):
        one.set_defaults(command=f"{parser.get_default('command') or ''} {name}".strip())
        _finish(one)
    if not inner and parser.prefix_chars == "-":
        formats = parser.get_default("formats") or FORMATS
        text = "text for people, or one line of JSON for programs (docs/output.md; default: text)"
        parser.add_argument("--output", choices=formats, default="text", help=text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkwap", description="A gate around every dbt build on Spark and Iceberg."
    )
    parser.add_argument("--version", action="version", version=f"sparkwap {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for register in COMMANDS:
        register(commands)
    _finish(parser)
    return parser


def register_server(commands: Commands) -> None:
    """Register ``sparkwap server start|stop|status|logs``."""
    help_ = "the embedded server of a lake"
    server = commands.add_parser("server", help=help_, description=help_)
    actions = server.add_subparsers(title="actions", metavar="action", required=True)

    def action(
        name: str, handler: Callable[[argparse.Namespace], CommandEnd], text: str
    ) -> argparse.ArgumentParser:
        parser = actions.add_parser(name, help=text, description=text)
        parser.add_argument(
            "--lake", type=Path, default=Path(".lake"), help="the lake directory (default: .lake)"
        )
        parser.set_defaults(handler=handler)
        return parser

    start = action("start", _start, "start the server if it does not run")
    start.add_argument("--thrift-port", type=int, default=0, help="default: a free port")
    start.add_argument("--connect-port", type=int, default=0, help="default: a free port")
    start.add_argument("--memory", default="2g", help="heap of the driver (default: 2g)")
    start.add_argument("--cores", type=int, help="task threads (default: all cores)")
    start.add_argument(
        "--idle-minutes", type=float, default=60,
        help="minutes without a client before the server stops; 0: never (default: 60)",
    )  # fmt: skip
    start.add_argument("--kafka", action="store_true", help="let Spark read Kafka topics")
    start.add_argument(
        "--catalog-uri",
        help="URI of a database, or address of an Iceberg REST catalog (default: SQLite in the "
        "lake)",
    )
    action("stop", _stop, "stop the server")
    action("status", _status, "show the running server")
    logs = action("logs", _logs, "print the server's log")
    logs.add_argument("--follow", "-f", action="store_true", help="print new lines as they arrive")


def register_doctor(commands: Commands) -> None:
    """Register ``sparkwap doctor``."""
    text = "check whether the gate's promises hold on a target's server and catalog"
    parser = commands.add_parser("doctor", help=text, description=text)
    add_dbt_options(parser)
    parser.set_defaults(handler=_doctor)


COMMANDS: tuple[Callable[[Commands], None], ...] = (
    register_server,
    register_alerts,
    register_metrics,
    register_build,
    register_doctor,
    register_page,
    register_plan,
    register_pr,
    register_quarantine,
    register_report,
    register_source,
    register_stream,
    register_operations,
)


@dataclass(frozen=True)
class ServerState:
    """The embedded server of a lake: its process, its endpoints (``host:port``), and its use.

    Attributes:
        state: ``running``, ``starting`` or ``stopped``; if stopped, nothing else is known.
        pid: Its process.
        thrift: The endpoint of Thrift.
        connect: The endpoint of Spark Connect.
        uptime_seconds: Since its start.
        memory_bytes: Of its process.
        descriptors: Number of open files.
        idle_seconds: Since the last client.
        clients: The processes that use it.
    """

    state: str
    pid: int | None = None
    thrift: str | None = None
    connect: str | None = None
    uptime_seconds: float | None = None
    memory_bytes: int | None = None
    descriptors: int | None = None
    idle_seconds: float | None = None
    clients: tuple[int, ...] = ()


@dataclass(frozen=True)
class ServerLog:
    """The server's log: the file, and its lines."""

    file: Path
    lines: tuple[str, ...]


@dataclass(frozen=True)
class DoctorReport:
    """What the doctor has found about a server and its catalog."""

    findings: tuple[Finding, ...]


def _start(arguments: argparse.Namespace) -> CommandEnd:
    from sparkwap.server import ServerConfig, ensure

    config = ServerConfig(
        lake=arguments.lake,
        thrift_port=arguments.thrift_port,
        connect_port=arguments.connect_port,
        memory=arguments.memory,
        cores=arguments.cores,
        idle_minutes=arguments.idle_minutes,
        kafka=arguments.kafka,
        catalog_uri=arguments.catalog_uri,
    )
    ensure(config, say)
    return _status(arguments)


def _stop(arguments: argparse.Namespace) -> CommandEnd:
    from sparkwap.server import stop

    print("stopped" if stop(arguments.lake) else "not running")
    return CommandEnd(result=ServerState("stopped"))


def _status(arguments: argparse.Namespace) -> CommandEnd:
    from sparkwap.server import status
    from sparkwap.server.config import LakePaths

    found = status(arguments.lake)
    if found is None:
        start = LakePaths(arguments.lake).command("start")
        print(f"not running; a dbt command starts it, or: {start}")
        return CommandEnd("stopped", ServerState("stopped"))
    endpoint = found.endpoint
    rows = {
        "state": "running" if found.ready else "starting",
        "pid": str(endpoint.pid),
        "thrift": f"{endpoint.host}:{endpoint.thrift_port}",
        "connect": f"{endpoint.host}:{endpoint.connect_port}",
        "uptime": _duration(found.uptime),
        "memory": f"{found.rss / 1e6:.0f} MB",
        "descriptors": str(found.descriptors),
        "idle": _duration(found.idle),
        "clients": " ".join(map(str, found.clients)) or "none",
    }
    for name, value in rows.items():
        print(f"{name:<12} {value}")
    state = ServerState(
        rows["state"], endpoint.pid, rows["thrift"], rows["connect"], found.uptime, found.rss,
        found.descriptors, found.idle, tuple(found.clients),
    )  # fmt: skip
    return CommandEnd(result=state)


def _doctor(arguments: argparse.Namespace) -> CommandEnd:
    from dbt.adapters.sparkwap.probing import look
    from sparkwap.gate import doctor

    call = call_of(arguments)
    facts = look(call.read_profile(), call.project_dir)
    findings = doctor.examine(facts)
    for line in doctor.lines(findings):
        print(line)
    outcome: Outcome = "done" if doctor.safe(findings) else "unsafe"
    return CommandEnd(outcome, DoctorReport(tuple(findings)))


def _logs(arguments: argparse.Namespace) -> CommandEnd:
    from sparkwap.server import logs, status
    from sparkwap.server.config import LakePaths

    status(arguments.lake)  # registers a running server's token for `redact`
    path = logs(arguments.lake)
    if not path.exists():
        raise SparkwapError(
            f"There is no log at {path}: the server of this lake was never started. "
            "Set another lake with --lake, or start the server: "
            + LakePaths(arguments.lake).command("start")
        )
    if arguments.output == "json":
        if arguments.follow:
            raise ConfigError(
                "--follow cannot be combined with --output json. Leave out one of the two."
            )
        lines = path.read_text(errors="replace").splitlines()
        return CommandEnd(result=ServerLog(path, tuple(lines)))
    with path.open(errors="replace") as log:
        for text in _follow(log, path) if arguments.follow else log:
            print(redact(text), end="", flush=arguments.follow)
    return CommandEnd()


def _follow(log: TextIO, path: Path) -> Iterator[str]:
    """Yield the log and then, without an end, all new text in it or in its successor."""
    while True:
        text = log.read()
        if text:
            yield text
            continue
        time.sleep(0.3)
        now = path.stat() if path.exists() else None
        if now is not None and now.st_size < log.tell():
            log.seek(0)
        elif now is not None and now.st_ino != os.fstat(log.fileno()).st_ino:
            with path.open(errors="replace") as successor:
                yield from _follow(successor, path)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
