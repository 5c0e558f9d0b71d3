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
    from rich import box
    from rich.markup import escape
    from rich.table import Table as Grid

    narrow = console.width < 120
    console.print(f"\n[bold]{escape(table.title)}[/]")
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    for at, name in enumerate(table.columns):
        numeric = is_numeric(table, at)
        heading = name.replace(" ", "\n") if narrow and numeric else name
        grid.add_column(escape(heading), justify="right" if numeric else "left", no_wrap=numeric)
    for row in table.rows:
        texts = [text_of(cell) for cell in row]
        if narrow:  # a mean above its spread takes half the room
            texts = [re.sub(" (?=±|reached)", "\n", text) for text in texts]
        grid.add_row(*map(escape, texts))
    console.print(grid)
    if table.note:
        console.print(f"\n[dim]{escape(table.note)}[/]")
