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
from plexus.cli.data import state
from plexus.cli.groups import JSON, answer
from plexus.data.registry import DATASETS
from plexus.errors import EXTRAS
from plexus.files import DATA_VARIABLE, data_directory
from plexus.machine import usable_cores

LIVE_PORT = 7000
"""Where `plexus node start` listens unless told otherwise."""
ROOM_GB = 1.0
OPTIONAL = {
    "report": "figures",
    "dashboard": "plexus dashboard and --watch",
    "cluster": "a Ray cluster: --address, the engine ray",
    "images": "tasks with photographs",
    "frames": "Run.metrics.to_pandas() and to_polars()",
}
"""What the extras are for that people miss."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox")
MARKS = {"ok": "✓", "optional": "–", "problem": "✗"}


class Examined(Struct, frozen=True):
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
    width, lines = max(len(finding.name) for finding in findings), []
    for each in findings:
        mark = click.style(MARKS[each.state], fg={"ok": "green", "problem": "red"}.get(each.state))
        lines.append(f"{mark} {each.name:<{width}}  {each.detail}")
        lines += [f"  {'':<{width}}  → {each.remedy}"] if each.remedy else []
    lines.append("something is missing" if broken else "ready")
    answer({"ok": not broken, "findings": findings}, as_json, *lines)
    if broken:
        sys.exit(1)


def examine() -> Iterator[Examined]:
    # An older Python than Plexus needs does not come this far.
    python = f"{platform.python_version()} on {platform.platform(terse=True)}; Plexus {__version__}"
    yield Examined("python", "ok", python)
    try:
        from plexus.learn.engines import hardware

        version, gpus = hardware()
    except (ImportError, OSError) as error:
        yield Examined("torch", "problem", str(error).splitlines()[0], "pip install torch")
    else:
        yield Examined("torch", "ok", version)
        found = "; ".join(gpus) or "no GPU that torch can use: training runs on the processor"
        yield Examined("device", "ok" if gpus else "optional", found)
    yield Examined("cores", "ok", f"{usable_cores()} for this process")
    yield _memory()
    yield _room(Path.cwd())
    yield _data()
    for extra, purpose in OPTIONAL.items():
        for package in EXTRAS[extra]:
            try:
                yield Examined(package, "ok", metadata.version(package))
            except metadata.PackageNotFoundError:
                remedy = f"pip install 'plexus-learning[{extra}]'"
                yield Examined(package, "optional", f"not installed: {purpose}", remedy)
    yield _port(LIVE_PORT)
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    none = "none found: pages open on another machine, too"
    yield Examined("browser", "ok" if browser else "optional", browser or none)


def _memory() -> Examined:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        table = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
        free, total = table["MemAvailable"] / 1e6, table["MemTotal"] / 1e6
    except (OSError, KeyError, ValueError):
        return Examined("memory", "ok", "not known on this platform")
    if free >= ROOM_GB:
        return Examined("memory", "ok", f"{free:.1f} of {total:.1f} GB free")
    return Examined("memory", "problem", f"{free:.1f} of {total:.1f} GB free", "close other programs")


def _room(folder: Path) -> Examined:
    free = shutil.disk_usage(folder).free / 1e9
    if free >= ROOM_GB:
        return Examined("disk", "ok", f"{free:.0f} GB free in {folder}")
    return Examined("disk", "problem", f"{free:.2f} GB free in {folder}", "runs are written here")


def _data() -> Examined:
    here = [each.name for each in DATASETS if state(each) == "here"]
    folder = data_directory()
    if here:
        return Examined("data", "ok", f"{', '.join(here)} in {folder}")
    detail = f"no data set in {folder}; the quick start needs none"
    return Examined("data", "optional", detail, f"plexus data list; {DATA_VARIABLE} names the folder")


def _port(port: int) -> Examined:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError as error:
            detail = f"{port} cannot be listened at: {error.strerror}"
            return Examined("port", "optional", detail, "plexus node start --listen HOST:PORT")
    return Examined("port", "ok", f"{port} is free for a live peer")
