"""`plexus data`: what data there is, and how it gets here."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group()
def data() -> None:
    """Fetch, import and check data sets and traces.

    They are kept in the folder that the environment variable PLEXUS_DATA names, or else in the
    platform's usual place for a user's data. Nothing is needed to begin: the quick start generates
    its traces and brings its data.
    """


JSON = click.option("--json", "as_json", is_flag=True, help="Print it as one JSON object.")


@data.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """All data sets that Plexus knows, and which of them are here."""
    from plexus.cli.data_words import list_lines, plain
    from plexus.data.registry import DATASETS
    from plexus.traces.readers.datadir import data_directory

    if as_json:
        datasets = [plain(each) for each in DATASETS]
        _print_json({"folder": str(data_directory()), "datasets": datasets})
    else:
        click.echo("\n".join(list_lines(DATASETS)))


@data.command()
@click.argument("name")
@JSON
def info(name: str, as_json: bool) -> None:
    """Where a data set comes from, its licence, its files; and what its traces say, if it is here."""
    from plexus.cli.data_words import info_lines, plain
    from plexus.data.registry import dataset

    if as_json:
        _print_json(plain(dataset(name)))
    else:
        click.echo("\n".join(info_lines(dataset(name))))


def _print_json(value: object) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


@data.command()
@click.argument("name")
@click.option("--from", "mirror", metavar="URL", help="Fetch from here instead; checksums still hold.")
@click.option("--force", is_flag=True, help="Replace a file of that name that is something else.")
def fetch(name: str, mirror: str | None, force: bool) -> None:
    """Download a data set, check it and put it in place. A download that was cut off goes on."""
    from plexus.cli.bar import bar
    from plexus.cli.data_words import places, size
    from plexus.data.fetch import fetch as fetch_dataset
    from plexus.data.registry import dataset

    chosen = dataset(name)
    total = chosen.archive.size if chosen.archive else chosen.size
    with bar(f"fetching {name}", total, sys.stderr) as progress:
        fetched = fetch_dataset(chosen, progress, mirror=mirror, force=force)
    state = f"fetched, {size(chosen.size)}" if fetched else "is here already"
    click.echo(f"{name} {state}: {places(chosen)}")


@data.command("import")
@click.argument("name")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--unchecked", is_flag=True, help="Take it even if its checksum is another.")
def import_command(name: str, path: Path, unchecked: bool) -> None:
    """Copy a data set that you have, from a file, a folder or the official archive.

    Own traces need no import: name their path in the spec.
    """
    from plexus.cli.data_words import places
    from plexus.data.importing import import_dataset, summary
    from plexus.data.registry import dataset

    chosen = dataset(name)
    import_dataset(chosen, path, unchecked=unchecked)
    click.echo(f"{name} imported: {places(chosen)}")
    for line in summary(chosen):
        click.echo(line)
