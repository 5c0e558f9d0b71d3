"""Runs by the paths a person gives: run directories, or folders that contain some."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from plexus.errors import PlexusError
from plexus.metrics.store import VERSIONS, Run, load_run


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at these paths, each once, in the order given; in a folder, by name."""
    found: dict[Path, Path] = {}
    for path in paths:
        for each in _runs_in(path):
            found.setdefault(each.resolve(), each)
    return [load_run(path) for path in found.values()]


def _runs_in(path: Path) -> list[Path]:
    if not path.is_dir():
        raise PlexusError(f"{path}: {'not a directory' if path.exists() else 'no such directory'}")
    if (path / VERSIONS).exists():
        return [path]
    inside = sorted(mark.parent for mark in path.rglob(VERSIONS))
    if not inside:
        raise PlexusError(f"{path}: neither a run directory nor a folder with some")
    return inside
