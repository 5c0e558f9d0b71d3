"""The files beside a page: figures as PNG and PDF, tables as CSV and LaTeX, specs to run again."""

from __future__ import annotations

import csv
import io
import re
from importlib.resources import files
from pathlib import Path

from plexus.files import named, write_text
from plexus.report.document import Cell, Picture, Quantity, Table, heading, text_of
from plexus.report.naming import NAMES
from plexus.style import styled


def write_picture(folder: Path, picture: Picture) -> list[str]:
    """PNG and PDF; their names. The same figure always gives the same bytes."""
    names = [f"{picture.id}.png", f"{picture.id}.pdf"]
    with named(folder), styled():
        picture.figure.savefig(folder / names[0], dpi=200)
        picture.figure.savefig(folder / names[1], metadata={"CreationDate": None})
    return names


def write_table(folder: Path, table: Table) -> list[str]:
    """CSV and LaTeX; their names."""
    names = [f"{table.id}.csv", f"{table.id}.tex"]
    write_text(folder / names[0], as_csv(table))
    write_text(folder / names[1], as_latex(table))
    return names


def as_csv(table: Table) -> str:
    """For programs: bare numbers, and the spread of a column in one of its own."""
    columns: list[list[str]] = []
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        columns.append([name, *map(_bare, cells)])
        spreads = [_bare(cell.spread) if isinstance(cell, Quantity) else "" for cell in cells]
        if any(spreads):
            columns.append([f"{name} (± 95 %)", *spreads])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _bare(cell: Cell) -> str:
    if isinstance(cell, Quantity):
        return cell.text if cell.value is None else repr(cell.value)
    return cell if isinstance(cell, str) else "" if cell is None else repr(cell)


def as_latex(table: Table) -> str:
    """A table for a paper, with the rules of the package booktabs."""
    kinds = "".join("r" if is_numeric(table, at) else "l" for at in range(len(table.columns)))
    caption = f"{_latex(heading(table.title))}. {_latex(table.note)}"
    lines = [[_latex(text_of(cell)) for cell in row] for row in (table.columns, *table.rows)]
    head, *rows = (f"    {' & '.join(line)} \\\\" for line in lines)
    words = {"CAPTION": caption, "ID": table.id, "KINDS": kinds}
    words["ROWS"] = "\n".join([head, r"    \midrule", *rows])
    template = files("plexus.report").joinpath("static/table.tex").read_text(encoding="utf-8")
    return re.sub("|".join(words), lambda found: words[found[0]], template)


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds quantities, which stand to the right."""
    return any(isinstance(row[column], Quantity | int | float) for row in table.rows)


def _latex(text: str) -> str:
    return re.sub(".", lambda found: NAMES["latex"].get(found[0], found[0]), text)
