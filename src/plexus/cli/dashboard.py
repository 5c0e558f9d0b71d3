"""`plexus dashboard`, and the dashboard beside a run: a process of its own that ends with the run's."""

from __future__ import annotations

import socket
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import click

from plexus.cli.groups import PATH, flag, option
from plexus.errors import EXTRAS, PlexusError, missing
from plexus.files import named
from plexus.machine import end_with_input

LOOPBACK, PORT = "127.0.0.1", 8400


@click.command()
@click.argument("runs_dir", metavar="[RUNS_DIR]", type=PATH, required=False)
@option(
    "--node nodes",
    "ADDRESS",
    "Look at a live node instead: host:port of its --metrics. May be given several times.",
    multiple=True,
)
@option("--host", "ADDRESS", default=LOOPBACK)
@option("--port", "N", "0 takes any that is free.", type=click.IntRange(0, 65535), default=PORT)
@flag("--open opens", "Open it in a browser.")
@option(
    "--allow-host allowed_hosts",
    "NAME",
    "A name under which browsers may reach it, besides addresses and localhost.",
    multiple=True,
)
@option("--fd", help="A socket to answer at, until input ends.", type=int, hidden=True)
def dashboard(
    runs_dir: Path | None,
    nodes: tuple[str, ...],
    host: str,
    port: int,
    opens: bool,
    allowed_hosts: tuple[str, ...],
    fd: int | None,
) -> None:
    """Look at runs and live fleets in a browser.

    RUNS_DIR is a directory of runs, one run, or the directory of a fleet (runs/ if not given). The page only
    shows things, and only this machine can reach it unless --host says otherwise.
    """
    if runs_dir is not None and nodes:
        raise click.UsageError("give a directory or --node, not both")
    runs_dir = runs_dir or (None if nodes else Path("runs"))
    need_server("the dashboard")
    from plexus.dashboard.app import create_app
    from plexus.dashboard.library import Library

    app = create_app(Library(runs_dir, nodes), allowed_hosts)
    if fd is not None:
        end_with_input()
        listener = socket.socket(fileno=fd)
    else:
        listener = listen(host, port)
        url = page_url(host, listener.getsockname()[1])
        click.echo(f"dashboard of {runs_dir or 'live nodes'} at {url} (Ctrl-C ends it)", err=True)
        if opens:
            webbrowser.open(url)
    import uvicorn

    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, loop="asyncio")
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def need_server(user: str) -> None:
    """Refuse what cannot be served, before anything is done for it."""
    for name in EXTRAS["dashboard"]:
        if find_spec(name) is None:
            raise PlexusError(missing(name, user))


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlexusError(f"--host {host} --port {port}: {reason}; try --port 0") from None


def page_url(host: str, port: int, show: str | None = None) -> str:
    name = f"[{host}]" if ":" in host else host
    page = f"#/run/{quote(show, safe='')}" if show else ""
    return f"http://{name}:{port}/{page}"


@contextmanager
def watching(out: Path, *, quiet: bool = False) -> Iterator[str]:
    """Show the run that is about to be written to `out`, at this address."""
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with listen(LOOPBACK, 0) as listener:
        url = page_url(LOOPBACK, listener.getsockname()[1], out.resolve().name)
        fd = listener.fileno()
        command = [sys.executable, "-m", "plexus", "dashboard", str(out), "--fd", str(fd)]
        # A session of its own: Ctrl-C is for the run. It ends when its input does, so also with us.
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[fd], start_new_session=True)
    try:
        if not quiet:
            click.echo(f"plexus: watch it at {url}", err=True)
        webbrowser.open(url)
        yield url
    finally:
        child.terminate()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()


def linger(url: str) -> None:
    """The run is over, but somebody may still be looking: wait for Ctrl-C, if there is a terminal."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        click.echo(f"plexus: the dashboard stays at {url} until Ctrl-C", err=True)
        with suppress(KeyboardInterrupt):
            sys.stdin.read()
