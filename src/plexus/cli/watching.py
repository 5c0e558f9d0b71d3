"""The dashboard beside a run: a process of its own that ends with the run's."""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import click

from plexus.cli.dashboard import LOOPBACK, listen, page_url
from plexus.errors import PlexusError
from plexus.files import named


class Page:
    """The dashboard of one run, as long as somebody wants it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def linger(self) -> None:
        """The run is over, but somebody may still be looking: wait for Ctrl-C, if there is a terminal."""
        if sys.stdin.isatty() and sys.stderr.isatty():
            click.echo(f"plexus: the dashboard stays at {self.url} until Ctrl-C", err=True)
            with suppress(KeyboardInterrupt):
                sys.stdin.read()


@contextmanager
def watching(out: Path, *, quiet: bool = False) -> Iterator[Page]:
    """Show the run that is about to be written to `out`."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise PlexusError(f"--watch needs {missing[0]}: pip install 'plexus-learning[dashboard]'")
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with listen(LOOPBACK, 0) as listener:
        url = page_url(LOOPBACK, listener.getsockname()[1], out.resolve().name)
        fd = listener.fileno()
        command = [sys.executable, "-m", "plexus", "dashboard", str(out), "--fd", str(fd)]
        # A session of its own: Ctrl-C is for the run. It ends when its input does, so also with us.
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[fd], start_new_session=True
        )
    try:
        if not quiet:
            click.echo(f"plexus: watch it at {url}", err=True)
        webbrowser.open(url)
        yield Page(url)
    finally:
        child.terminate()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
