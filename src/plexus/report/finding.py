"""Runs by the paths a person gives: run directories, or folders that contain some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from plexus.errors import PlexusError
from plexus.report.arms import metric_of
from plexus.runs.directory import VERSIONS, Run, load_run, spec_digest_of

_EARLIER = re.compile(r"(.+)\.[1-9][0-9]*")
"""What `plexus run` calls a run that it made room for: see `metrics.store.claim`."""


class Found(NamedTuple):
    """Where runs are."""

    runs: list[Path]
    earlier: list[Path]
    """Runs that were done again since: in a folder only the newest counts."""


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs at these paths, each once, in the order given; in a folder, the newest ones by name."""
    return [load(path) for path in find_runs(paths).runs]


def load(path: Path) -> Run:
    """A run whose evaluations, if any, say what a comparison asks."""
    run = load_run(path)
    for name in (metric_of(run)[0], "sent_bytes", "training_s") if run.metrics else ():
        if name not in run.metrics:
            raise PlexusError(f"{path / 'evaluations.csv'}: no column {name}")
    return run


def find_runs(paths: Iterable[Path]) -> Found:
    """Where the runs at these paths are. What is named itself counts, whatever is beside it."""
    runs: dict[Path, Path] = {}
    earlier: dict[Path, Path] = {}
    for path in paths:
        inside = _runs_in(path)
        again = [] if inside == [path] else _done_again(inside)
        earlier |= {each.resolve(): each for each in again}
        for each in inside:
            if each not in again:
                runs.setdefault(each.resolve(), each)
    return Found(list(runs.values()), [path for key, path in earlier.items() if key not in runs])


def _runs_in(path: Path) -> list[Path]:
    if not path.is_dir():
        raise PlexusError(f"{path}: {'not a directory' if path.exists() else 'no such directory'}")
    if (path / VERSIONS).exists():
        return [path]
    inside = sorted(mark.parent for mark in path.rglob(VERSIONS))
    if not inside:
        raise PlexusError(f"{path}: neither a run directory nor a folder with some")
    return inside


def _done_again(runs: Sequence[Path]) -> list[Path]:
    """Those `X.1`, `X.2`, … beside which there is `X`, a run of the same spec."""
    there = set(runs)
    found = []
    for run in runs:
        name = _EARLIER.fullmatch(run.name)
        newest = run.with_name(name[1]) if name else run
        if newest != run and newest in there and _same_spec(newest, run):
            found.append(run)
    return found


def _same_spec(one: Path, other: Path) -> bool:
    try:
        return spec_digest_of(one) == spec_digest_of(other)
    except PlexusError:
        return False  # who reads the one that is damaged is told what is wrong
