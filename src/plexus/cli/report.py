"""`plexus report` and `plexus compare`: runs side by side, on a page and in the terminal."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from plexus.errors import PlexusError
from plexus.report.arms import find_runs, group, load
from plexus.report.comparison import Judge, table_of
from plexus.report.comparison import compare as compare_arms
from plexus.report.document import Table, text_of
from plexus.report.export import is_numeric
from plexus.report.standard import by_setting, standard_sections, titles
from plexus.runs.run import Run

if TYPE_CHECKING:
    from rich.console import Console

# A table of a report, in the terminal: as wide as that is, with every column and every name whole.

NARROW_TEXT = 12
"""Characters of a text column, but for the names, where room is scarce."""

Columns = list[list[str]]
"""Heading and cells of each column, lines broken."""


def print_table(table: Table, console: Console) -> None:
    """Title, rows and note. What is too wide even with broken lines is continued below, names again."""
    from rich.markup import escape

    console.print(f"\n[bold]{escape(table.title)}[/]")
    columns, gap = _columns(table, narrow=False), 2
    if len(_parts(columns, gap, console.width)) > 1:
        columns, gap = _columns(table, narrow=True), 1
    for number, part in enumerate(_parts(columns, gap, console.width)):
        if number:
            console.print()
        _print_part(table, columns, part, gap, console)
    if table.note:
        console.print(f"\n[dim]{escape(table.note)}[/]")


def _columns(table: Table, *, narrow: bool) -> Columns:
    columns = []
    for at, name in enumerate(table.columns):
        cells = [text_of(row[at]) for row in table.rows]
        if narrow and is_numeric(table, at):  # a mean above its spread takes half the room
            cells = [re.sub(" (?=±|reached|seeds)|(?<=:) ", "\n", cell) for cell in cells]
            name = name.replace(" ", "\n")
        elif narrow and at:
            cells = [textwrap.fill(cell, NARROW_TEXT) for cell in cells]
        columns.append([name, *cells])
    return columns


def _parts(columns: Columns, gap: int, width: int) -> list[list[int]]:
    """Which columns stand side by side: as many as leave the names, the first column, whole words."""
    longest_word = max(len(word) for text in columns[0] for word in text.split())
    for_the_rest = width - min(longest_word, width // 2)
    parts, room = [[0]], for_the_rest
    for at in range(1, len(columns)):
        needed = gap + _width(columns[at])
        if needed > room and len(parts[-1]) > 1:
            parts, room = [*parts, [0]], for_the_rest
        parts[-1].append(at)
        room -= needed
    return parts


def _width(texts: Sequence[str]) -> int:
    return max((len(line) for text in texts for line in text.splitlines()), default=0)


def _print_part(table: Table, columns: Columns, part: Sequence[int], gap: int, console: Console) -> None:
    from rich.markup import escape
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for at in part:
        grid.add_column(
            escape(columns[at][0]),
            justify="right" if is_numeric(table, at) else "left",
            no_wrap=at > 0,  # only the names give way, between words
            overflow="fold",
        )
    for row in range(1, 1 + len(table.rows)):
        grid.add_row(*(escape(columns[at][row]) for at in part))
    console.print(grid)


_RUNS = click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
_TARGET = click.option(
    "--target",
    type=float,
    metavar="X",
    help="The metric to be reached, e.g. 0.8.  [default: the best that the best baseline became]",
)


@click.command()
@_RUNS
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    default=Path("report.html"),
    show_default=True,
    help="The page; its figures and tables go to a folder beside it.",
)
@click.option("--title", metavar="TEXT", default="Plexus report", show_default=True)
@_TARGET
def report(paths: tuple[Path, ...], out: Path, title: str, target: float | None) -> None:
    """Write one self-contained page about runs.

    RUN is a run directory, or a folder that contains some. Runs that differ only in their seed are shown
    as one, with their spread.
    """
    from plexus.report.page import write_report

    if out.suffix != ".html":
        raise PlexusError(f"{out}: a report is a page, and its name ends in .html")
    runs = _load(paths)
    options = [] if target is None else ["--target", f"{target:g}"]
    command = shlex.join(["plexus", "report", *map(str, paths), *options, "-o", str(out)])
    write_report(out, title, standard_sections(group(runs), target), runs, command)
    click.echo(f"{out}: {len(runs)} runs; figures and tables are in {out.stem}-files")


@click.command()
@_RUNS
@_TARGET
@click.option(
    "--judge",
    type=click.Choice(["mean", "best"]),
    default="mean",
    show_default=True,
    help="Where every node has its own model: judge by their mean, or by the best of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare(paths: tuple[Path, ...], target: float | None, judge: Judge, as_json: bool) -> None:
    """Compare runs: best metric, and time, communication and training to a target.

    RUN is a run directory, or a folder that contains some. Runs that differ only in their seed are
    averaged; those of different tasks, sizes or traces are compared separately.
    """
    groups = by_setting(group(_load(paths)))
    found = [
        (title, compare_arms(arms, target, judge)) for title, arms in zip(titles(groups), groups, strict=True)
    ]
    if as_json:
        document = [{"setting": title, "comparison": each} for title, each in found]
        click.echo(msgspec.json.encode(document))
        return
    from rich.console import Console

    from plexus.cli.report import print_table

    console = Console(highlight=False)
    for title, each in found:
        print_table(table_of(each, title=title), console)


def _load(paths: tuple[Path, ...]) -> list[Run]:
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
