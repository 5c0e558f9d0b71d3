"""`plexus data`: what data there is, and how it gets here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from plexus.cli.groups import JSON, PATH, Group, flag, option, print_json
from plexus.data import registry
from plexus.data.fetch import by_hand
from plexus.data.fetch import fetch as fetch_dataset
from plexus.data.importing import import_dataset, summary
from plexus.data.registry import Dataset, dataset
from plexus.files import DATA_VARIABLE, data_directory
from plexus.quantities import size

STATES = {"here": "here", "missing": "not here", "other": "another file of that name"}


@click.group(cls=Group)
def data() -> None:
    """Fetch, import and check data sets and traces.

    They are kept in the folder that the environment variable PLEXUS_DATA names, or else in the
    platform's usual place for a user's data. Nothing is needed to begin: the quick start generates
    its traces and brings its data.
    """


@data.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """All data sets that Plexus knows, and which of them are here."""
    if as_json:
        print_json({"folder": str(data_directory()), "datasets": [plain(each) for each in registry.DATASETS]})
        return
    rows = [("NAME", "STATE", "SIZE", "WHAT")]
    rows += [(each.name, state(each), size(each.size), each.what) for each in registry.DATASETS]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, where, bytes_, what in rows:
        click.echo(f"{name:<{widths[0]}}  {where:<{widths[1]}}  {bytes_:>{widths[2]}}  {what}")
    click.echo(f"\nThey are kept in {data_directory()} (set {DATA_VARIABLE} to change that).")
    click.echo("`plexus data info NAME` tells licence, source and files of one; `plexus data fetch NAME` and")
    click.echo("`plexus data import NAME PATH` bring it here.")


@data.command()
@click.argument("name")
@JSON
def info(name: str, as_json: bool) -> None:
    """Where a data set comes from, its licence, its files; and what its traces say, if it is here."""
    if as_json:
        print_json(plain(dataset(name)))
    else:
        click.echo("\n".join(info_lines(dataset(name))))


@data.command()
@click.argument("name")
@option("--from mirror", "URL", "Fetch from here instead; checksums still hold.")
@flag("--force", "Replace a file of that name that is something else.")
def fetch(name: str, mirror: str | None, force: bool) -> None:
    """Download a data set, check it and put it in place. A download that was cut off goes on."""
    from plexus.cli.progress import display_for, download_progress

    chosen = dataset(name)
    total = chosen.archive.size if chosen.archive else chosen.size
    with display_for(sys.stderr) as display:
        progress = download_progress(f"fetching {name}", total, display)
        fetched = fetch_dataset(chosen, progress, mirror=mirror, force=force)
    outcome = f"fetched, {size(chosen.size)}" if fetched else "is here already"
    click.echo(f"{name} {outcome}: {places(chosen)}")


@data.command("import")
@click.argument("name")
@click.argument("path", type=PATH)
@flag("--unchecked", "Take it even if its checksum is another.")
def import_command(name: str, path: Path, unchecked: bool) -> None:
    """Copy a data set that you have, from a file, a folder or the official archive.

    Own traces need no import: name their path in the spec.
    """
    chosen = dataset(name)
    import_dataset(chosen, path, unchecked=unchecked)
    click.echo("\n".join([f"{name} imported: {places(chosen)}", *summary(chosen)]))


def state(dataset: Dataset) -> str:
    """Whether it is here, and if not, how it gets here."""
    states = {file.state for file in dataset.files}
    if states == {"here"}:
        return "here"
    if "other" in states:
        return "differs"
    if len(states) > 1:
        return "in part"
    return "fetch" if dataset.fetchable else "import"


def plain(dataset: Dataset) -> dict[str, Any]:
    """All that `info_lines` says, for a program."""
    files = [
        {**msgspec.to_builtins(file), "path": str(file.place), "state": file.state} for file in dataset.files
    ]
    facts = msgspec.to_builtins(dataset)
    return {**facts, "files": files, "size": dataset.size, "state": state(dataset)}


def places(dataset: Dataset) -> str:
    return ", ".join(str(file.place) for file in dataset.files)


def info_lines(dataset: Dataset) -> Iterator[str]:
    yield f"{dataset.name}: {dataset.what}"
    yield f"  licence   {dataset.licence}"
    yield f"  page      {dataset.page}"
    if dataset.archive is not None:
        yield f"  archive   {dataset.archive.url} ({size(dataset.archive.size)})"
    for file in dataset.files:
        yield f"  file      {file.place}: {STATES[file.state]}"
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
