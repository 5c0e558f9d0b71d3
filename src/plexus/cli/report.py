"""`plexus report`: a page about runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from plexus.cli.groups import PATH, option
from plexus.errors import PlexusError
from plexus.report.arms import find_runs, group, load
from plexus.report.standard import standard_sections
from plexus.runs.run import Run

RUNS = click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=PATH)
TARGET = option(
    "--target",
    "X",
    "The metric to be reached, e.g. 0.8.  [default: the best that the best baseline became]",
    type=float,
)


@click.command()
@RUNS
@option(
    "-o --out",
    "FILE",
    "The page; its figures and tables go to a folder beside it.",
    default=Path("report.html"),
)
@option("--title", "TEXT", default="Plexus report")
@TARGET
def report(paths: tuple[Path, ...], out: Path, title: str, target: float | None) -> None:
    """Write one self-contained page about runs.

    RUN is a run directory, or a folder that contains some. Runs that differ only in their seed are shown
    as one, with their spread.
    """
    from plexus.report.page import write_report

    if out.suffix != ".html":
        raise PlexusError(f"{out}: a report is a page, and its name ends in .html")
    runs = load_runs(paths)
    options = [] if target is None else ["--target", str(target)]
    command = shlex.join(["plexus", "report", *map(str, paths), *options, "-o", str(out)])
    write_report(out, title, standard_sections(group(runs), target), runs, command)
    click.echo(f"{out}: {len(runs)} runs; figures and tables are in {out.stem}-files")


def load_runs(paths: tuple[Path, ...]) -> list[Run]:
    """The runs, but for those that were done again since or are damaged: what is left out is said."""
    found = find_runs(paths)
    if found.earlier:
        number = len(found.earlier)
        which = "run that was" if number == 1 else "runs that were"
        named = f"{'such as ' if number > 1 else ''}{found.earlier[0]}"
        click.echo(f"plexus: left out {number} earlier {which} done again: {named}", err=True)
    runs: list[Run] = []
    damaged: list[str] = []
    for path in found.runs:
        try:
            runs.append(load(path))
        except PlexusError as error:
            damaged.append(" ".join(str(error).split()))
    if not runs:
        several = f"of {len(damaged)} runs none can be read; " if len(damaged) > 1 else ""
        raise PlexusError(several + damaged[0])
    for complaint in damaged:
        click.echo(f"plexus: left out a damaged run: {complaint}", err=True)
    return runs
