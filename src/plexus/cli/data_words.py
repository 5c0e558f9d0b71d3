"""Data sets as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from plexus.data.fetch import by_hand
from plexus.data.importing import summary
from plexus.data.registry import Dataset
from plexus.data.store import path_of, state_of
from plexus.traces.readers.datadir import ENVIRONMENT, data_directory

STATES = {"here": "here", "missing": "not here", "other": "another file of that name"}


def size(count: float) -> str:
    """A number of bytes, in powers of 1000."""
    power = 0 if count < 1000 else min(3, int(math.log10(count)) // 3)
    return f"{count / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


def state(dataset: Dataset) -> str:
    """Whether it is here, and if not, how it gets here."""
    states = {state_of(file) for file in dataset.files}
    if states == {"here"}:
        return "here"
    if "other" in states:
        return "differs"
    if len(states) > 1:
        return "in part"
    return "fetch" if dataset.fetchable else "import"


def list_lines(datasets: Sequence[Dataset]) -> Iterator[str]:
    """A table of data sets."""
    rows = [("NAME", "STATE", "SIZE", "WHAT")]
    rows += [(d.name, state(d), size(d.size), d.what) for d in datasets]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for name, where, bytes_, what in rows:
        yield f"{name:<{widths[0]}}  {where:<{widths[1]}}  {bytes_:>{widths[2]}}  {what}"
    yield ""
    yield f"They are kept in {data_directory()} (set {ENVIRONMENT} to change that)."
    yield "`plexus data info NAME` tells licence, source and files of one; `plexus data fetch NAME` and"
    yield "`plexus data import NAME PATH` bring it here."


def plain(dataset: Dataset) -> dict[str, Any]:
    """All that `info_lines` says, for a program."""
    files = [
        {**msgspec.to_builtins(file), "path": str(path_of(file)), "state": state_of(file)}
        for file in dataset.files
    ]
    facts = msgspec.to_builtins(dataset)
    return {**facts, "files": files, "size": dataset.size, "state": state(dataset)}


def places(dataset: Dataset) -> str:
    """Where its files are."""
    return ", ".join(str(path_of(file)) for file in dataset.files)


def info_lines(dataset: Dataset) -> Iterator[str]:
    """All there is to say about a data set."""
    yield f"{dataset.name}: {dataset.what}"
    yield f"  licence   {dataset.licence}"
    yield f"  page      {dataset.page}"
    if dataset.archive is not None:
        yield f"  archive   {dataset.archive.url} ({size(dataset.archive.size)})"
    for file in dataset.files:
        yield f"  file      {path_of(file)}: {STATES[state_of(file)]}"
        if file.url is not None:
            yield f"    from      {file.url}"
        yield f"    size      {file.size:,} bytes"
        yield f"    checksum  {' or '.join(file.checksums)}"
        if file.kind != "task":
            option = ', latency_kind = "round-trip"' if file.round_trip else ""
            key = "cities" if file.kind == "places" else file.kind
            yield f'    in a spec [traces] {key} = "data:{file.path}"{option}'
    if state(dataset) == "here":
        yield from summary(dataset)
    elif dataset.fetchable:
        yield f"  to get it: plexus data fetch {dataset.name}; or {by_hand(dataset)}"
    else:
        yield f"  to get it: {by_hand(dataset)}"
