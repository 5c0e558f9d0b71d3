"""`plexus doctor`: is this machine ready, and what could it do?"""

from __future__ import annotations

import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct

from plexus import __version__
from plexus.cli.groups import JSON, print_json
from plexus.files import DATA_VARIABLE, data_directory
from plexus.machine import usable_cores

LIVE_PORT = 7000
"""Where `plexus node start` listens unless told otherwise."""
ROOM_GB = 1.0
OPTIONAL = {
    "matplotlib": ("figures", "pip install 'plexus-learning[report]'"),
    "ray": ("the engine ray, for a cluster", "pip install 'plexus-learning[cluster]'"),
    "pillow": ("CelebA's photographs", "pip install 'plexus-learning[images]'"),
    "pandas": ("Run.metrics.to_pandas()", "pip install pandas"),
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox")
MARKS = {"ok": "✓", "optional": "–", "problem": "✗"}


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "optional", "problem"]
    """`optional`: not there, and only needed for what the detail says."""
    detail: str
    remedy: str = ""


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check this machine: Python, torch, devices, cores, memory, data, ports.

    Ends with 1 if something that everybody needs is missing.
    """
    findings = list(examine())
    broken = any(finding.state == "problem" for finding in findings)
    if as_json:
        print_json({"ok": not broken, "findings": findings})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            colour = {"ok": "green", "problem": "red"}.get(finding.state)
            mark = click.style(MARKS[finding.state], fg=colour)
            click.echo(f"{mark} {finding.name:<{width}}  {finding.detail}")
            if finding.remedy:
                click.echo(f"  {'':<{width}}  → {finding.remedy}")
        click.echo("something is missing" if broken else "ready")
    if broken:
        sys.exit(1)


def examine() -> Iterator[Finding]:
    """Everything there is to look at."""
    yield _python()
    yield from _torch()
    yield Finding("cores", "ok", f"{usable_cores()} for this process")
    yield _memory()
    yield _room(Path.cwd())
    yield from _data()
    yield from _optional()
    yield _port(LIVE_PORT)
    yield _browser()


def _python() -> Finding:
    # An older Python than Plexus needs does not come this far.
    where = platform.platform(terse=True)
    return Finding("python", "ok", f"{platform.python_version()} on {where}; Plexus {__version__}")


def _torch() -> Iterator[Finding]:
    try:
        from plexus.learn.engines import hardware

        version, gpus = hardware()
    except (ImportError, OSError) as error:
        first_line = str(error).splitlines()[0]
        yield Finding("torch", "problem", first_line, "pip install torch")
        return
    yield Finding("torch", "ok", version)
    found = "; ".join(gpus) or "no GPU that torch can use: training runs on the processor"
    yield Finding("device", "ok" if gpus else "optional", found)


def _memory() -> Finding:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        table = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        free, total = table["MemAvailable"] / 1e6, table["MemTotal"] / 1e6
    except (OSError, KeyError, ValueError):
        return Finding("memory", "ok", "not known on this platform")
    if free >= ROOM_GB:
        return Finding("memory", "ok", f"{free:.1f} of {total:.1f} GB free")
    return Finding("memory", "problem", f"{free:.1f} of {total:.1f} GB free", "close other programs")


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / 1e9
    if free >= ROOM_GB:
        return Finding("disk", "ok", f"{free:.0f} GB free in {folder}")
    return Finding("disk", "problem", f"{free:.2f} GB free in {folder}", "runs are written here")


def _data() -> Iterator[Finding]:
    from plexus.cli.data import state
    from plexus.data.registry import DATASETS

    here = [each.name for each in DATASETS if state(each) == "here"]
    folder = data_directory()
    if here:
        yield Finding("data", "ok", f"{', '.join(here)} in {folder}")
    else:
        detail = f"no data set in {folder}; the quick start needs none"
        yield Finding("data", "optional", detail, f"plexus data list; {DATA_VARIABLE} names the folder")


def _optional() -> Iterator[Finding]:
    for package, (purpose, remedy) in OPTIONAL.items():
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "optional", f"not installed: {purpose}", remedy)


def _port(port: int) -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError as error:
            detail = f"{port} cannot be listened at: {error.strerror}"
            return Finding("port", "optional", detail, "plexus node start --listen HOST:PORT")
    return Finding("port", "ok", f"{port} is free for a live peer")


def _browser() -> Finding:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found:
        return Finding("browser", "ok", found)
    return Finding("browser", "optional", "none found: pages open on another machine, too")
