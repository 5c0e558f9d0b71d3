"""A table of a report, in the terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from plexus.report.document import Table, text_of
from plexus.report.files import is_numeric

if TYPE_CHECKING:
    from rich.console import Console


def print_table(table: Table, console: Console) -> None:
    """Title, rows and note."""
    from rich.markup import escape
    from rich.table import Table as Grid

    narrow = console.width < 120
    console.print(f"\n[bold]{escape(table.title)}[/]")
    grid = Grid(box=None, pad_edge=False, padding=(0, 2 - narrow, 0, 0), header_style="dim")
    for at, name in enumerate(table.columns):
        numeric = is_numeric(table, at)
        heading = name.replace(" ", "\n") if narrow and numeric else name
        grid.add_column(
            escape(heading),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in table.rows:
        texts = [text_of(cell) for cell in row]
        if narrow:  # a mean above its spread takes half the room
            texts = [re.sub(" (?=±|reached)", "\n", text) for text in texts]
        grid.add_row(*map(escape, texts))
    console.print(grid)
    if table.note:
        console.print(f"\n[dim]{escape(table.note)}[/]")
