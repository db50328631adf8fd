"""``sparkwap page``: serves the page, only on the loopback address of this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sparkwap.core import next_command
from sparkwap.core.command_end import CommandEnd
from sparkwap.core.dbt_cli import DbtCall, add_dbt_options, given_options, parse_call
from sparkwap.core.errors import ConfigError
from sparkwap.page.access import SETTINGS, TOKEN, Settings, new_token, without_secrets

if TYPE_CHECKING:
    from sparkwap.core.dbt_cli import Commands

HOST = "127.0.0.1"
PORT = 8501
FOLDER = "page"
"""The page's own folder in dbt's target folder."""

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class PageResult:
    """The address of the page, as soon as it can be opened."""

    url: str


def register_page(commands: Commands) -> None:
    """Add ``sparkwap page``."""
    text = "serve the quality page (runs, branches, tests, quarantine) to this machine's browser"
    parser = commands.add_parser("page", help=text, description=text)
    parser.add_argument(
        "--port", type=int, help=f"the port (default: {PORT}, or a free port if it is in use)"
    )
    parser.add_argument(
        "--url", help="the address of the page in browsers, if a reverse proxy serves it there"
    )
    add_dbt_options(parser)
    parser.set_defaults(handler=page)


def page(parsed: argparse.Namespace) -> CommandEnd:
    """Serve the page until it is interrupted."""
    _require_streamlit()
    public = parsed.url and _public(parsed.url)
    arguments = given_options(parsed)
    call = parse_call(arguments)
    call.lake()  # reports an unusable profile here, and not in the browser
    settings = Settings(new_token(os.environ), tuple(arguments))
    port = free_port(parsed.port)
    own = f"http://{HOST}:{port}"
    public = public or own
    path = folder_of(call) / f"settings_{port}.json"
    settings.write(path)
    # A SIGTERM ends Streamlit too, as an interrupt does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = serve(
            command(port, public), port, path, lambda: ready(own, public, settings, parsed.emit)
        )
    finally:
        path.unlink(missing_ok=True)
    return CommandEnd("failed" if code else "done")


def folder_of(call: DbtCall) -> Path:
    """Return the folder of the page's settings and comparisons."""
    return call.project_dir / call.target_path / FOLDER


def command(port: int, public: str) -> list[str]:
    """Return the command that starts Streamlit.

    It has all options that affect security, so they override the user's ``config.toml``.

    Args:
        public: The address of the page in browsers.
    """
    address = urlsplit(public)
    options = {
        "server.address": HOST,
        "server.port": port,
        "server.headless": "true",  # opens no browser and asks for no mail address
        "server.enableCORS": "true",  # accepts no request from another origin
        "server.enableXsrfProtection": "true",
        "server.fileWatcherType": "none",
        "runner.magicEnabled": "false",
        "browser.gatherUsageStats": "false",
        # Requests of pages of this host are accepted, too.
        "browser.serverAddress": str(address.hostname),
        "server.baseUrlPath": address.path.strip("/"),
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",  # an error's text may quote a connection
        "theme.base": "light",
        "theme.primaryColor": "#0072B2",
        "logger.level": "error",
    }
    app = Path(__file__).with_name("app.py")
    # Without these, any page could open it by a name of its own that leads to this machine.
    hosts = dict.fromkeys((HOST, "localhost", str(address.hostname)))
    return [
        *(sys.executable, "-m", "streamlit", "run", str(app)),
        *(text for key, value in options.items() for text in (f"--{key}", str(value))),
        *(text for host in hosts for text in ("--server.allowedHosts", host)),
    ]


def _public(url: str) -> str:
    """Return the address of the page in browsers, with a slash at its end."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            f"--url {url} is not the address of a page, such as "
            "https://lake.example.com/quality/. The page was not started."
        )
    return f"{url.rstrip('/')}/"


def serve(command: Sequence[str], port: int, settings: Path, ready: Callable[[], None]) -> int:
    """Run Streamlit until it ends or is interrupted; call ``ready`` when it accepts connections."""
    environment = {**without_secrets(os.environ), SETTINGS: str(settings)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as child:
        try:
            if _answers(child, port):
                ready()
            return child.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        # It still waits for browsers to disconnect; it has no data to save.
        child.kill()


def _answers(child: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the page accepts connections; return False if its process ends before."""
    while child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return True
        time.sleep(_LOOK_SECONDS)
    return False


def free_port(wanted: int | None) -> int:
    """Return the port to listen on: the wanted one, else the default, else a free one."""
    for port in (wanted or PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if wanted is None:
                    continue
                raise ConfigError(
                    f"Port {wanted} of {HOST} cannot be used: {error.strerror}. The page was not "
                    "started. Choose another port, or omit --port."
                ) from error
            return int(probe.getsockname()[1])
    raise ConfigError(f"No port of {HOST} is free, so the page was not started.")


def _require_streamlit() -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError(
            "The page needs Streamlit, which is not installed. Nothing was started. "
            f"In this repository: make page. Elsewhere: {next_command.install('page')}"
        )


def ready(own: str, public: str, settings: Settings, emit: Callable[[CommandEnd], None]) -> None:
    """Print the address of the page; ``emit`` prints it for programs, without the token.

    Args:
        own: Its address on this machine.
        public: Its address in browsers, which is another one behind a proxy.
    """
    emit(CommandEnd(result=PageResult(public)))
    token = f"the value of {TOKEN}" if os.environ.get(TOKEN) else settings.token
    proxy = f"For the proxy:     {own}{urlsplit(public).path}\n" if public != own else ""
    print(
        f"The quality page:  {public}\nToken:             {token}\n{proxy}"
        "Rows, publish and discard need the token. Ctrl-C ends the page.",
        flush=True,
    )
