"""`plexus compare`: runs side by side, in tables as wide as the terminal, every column and name whole."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from plexus.cli.groups import JSON, flag, option, print_json
from plexus.cli.report import RUNS, TARGET, load_runs
from plexus.report.arms import group
from plexus.report.comparison import compare as compare_arms
from plexus.report.comparison import findings, table_of
from plexus.report.document import Table, is_numeric, text_of
from plexus.report.standard import agreements, by_setting, titles
from plexus.runs.run import Run

NARROW_TEXT = 12
"""Characters of a text column, but for the names, where room is scarce."""

Columns = list[list[str]]
"""Heading and cells of each column, lines broken."""


@click.command()
@RUNS
@TARGET
@option(
    "--judge",
    help="Where every node has its own model: judge by their mean, or by the best of them.",
    type=click.Choice(["mean", "best"]),
    default="mean",
)
@flag("--headers", "Count what TLS and TCP/IP add to the bytes of messages, too.")
@JSON
def compare(paths: tuple[Path, ...], as_json: bool, **how: Any) -> None:
    """Compare runs: the metric at the end, and time, communication and training to a target.

    RUN is a run directory, or a folder that contains some. Runs that differ only in their seed are
    averaged; those of different tasks, hours, nodes or traces are compared separately. All are seen at the
    same simulated times, and what is within their 95 % intervals is not called a difference. A live fleet
    beside a run of the same file: whether they agree, round by round.
    """
    print_comparison(load_runs(paths), as_json, **how)


def print_comparison(runs: Sequence[Run], as_json: bool, **how: Any) -> None:
    """A table for each setting, those first that have ours beside baselines; `how` arms are compared."""
    groups = by_setting(group(runs))
    found = [
        (title, compare_arms(arms, **how), list(agreements(arms)))
        for title, arms in zip(titles(groups), groups, strict=True)
    ]
    if as_json:
        print_json([{"setting": it[0], "comparison": it[1], "rehearsal": it[2]} for it in found])
        return
    console = Console(highlight=False)
    for title, each, rehearsals in found:
        print_table(_seeds_said_once(table_of(each, title=title)), console, findings(each))
        for table in rehearsals:
            print_table(table, console)


def _seeds_said_once(table: Table) -> Table:
    """Without the column of seeds, the last, where all rows have the same: a terminal is narrow."""
    seeds = {row[-1] for row in table.rows}
    if len(seeds) > 1 or len(table.rows) == 1:
        return table
    rows = tuple(row[:-1] for row in table.rows)
    return replace(table, columns=table.columns[:-1], rows=rows, note=f"Seeds: {seeds.pop()}. {table.note}")


def print_table(table: Table, console: Console, seen: str = "") -> None:
    """Title, rows, what is seen in them, note. What is too wide even with broken lines goes on below, names
    again."""
    console.print(f"\n[bold]{escape(table.title)}[/]")
    columns, gap = _columns(table, narrow=False), 2
    if len(_parts(columns, gap, console.width)) > 1:
        columns, gap = _columns(table, narrow=True), 1
    for number, part in enumerate(_parts(columns, gap, console.width)):
        if number:
            console.print()
        grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
        for at in part:
            side: Literal["right", "left"] = "right" if is_numeric(table, at) else "left"
            # Only the names, which are first, give way: between words.
            grid.add_column(escape(columns[at][0]), justify=side, no_wrap=at > 0, overflow="fold")
        for row in range(1, 1 + len(table.rows)):
            grid.add_row(*(escape(columns[at][row]) for at in part))
        console.print(grid)
    if seen:
        console.print(f"\n{escape(seen)}")
    if table.note:
        console.print(f"\n[dim]{escape(table.note)}[/]")


def _columns(table: Table, *, narrow: bool) -> Columns:
    columns = []
    for at, name in enumerate(table.columns):
        cells = [text_of(row[at]) for row in table.rows]
        if narrow and is_numeric(table, at):  # a mean above its spread takes half the room
            cells = [re.sub(r" (?=±|reached|seeds|noise|\()|(?<=:) ", "\n", cell) for cell in cells]
            name = name.replace(" ", "\n")
        elif narrow and at:
            cells = [textwrap.fill(cell, NARROW_TEXT) for cell in cells]
        columns.append([name, *cells])
    return columns


def _parts(columns: Columns, gap: int, width: int) -> list[list[int]]:
    """Which columns stand side by side: as many as leave the names, the first column, two lines of whole
    words."""
    widths = range(max(len(word) for text in columns[0] for word in text.split()), width)
    of_names = (each for each in widths if all(len(textwrap.wrap(text, each)) <= 2 for text in columns[0]))
    for_the_rest = width - min(next(of_names, width), width // 2)
    parts, room = [[0]], for_the_rest
    for at in range(1, len(columns)):
        needed = gap + max((len(line) for text in columns[at] for line in text.splitlines()), default=0)
        if needed > room and len(parts[-1]) > 1:
            parts, room = [*parts, [0]], for_the_rest
        parts[-1].append(at)
        room -= needed
    return parts
