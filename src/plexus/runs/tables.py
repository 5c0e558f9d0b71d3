"""The tables of a run directory (`tables.toml` declares them): how a row becomes text, and columns again.

A table is one CSV file: a header line, then one line per row, only ever appended to. A cell is an
integer, a number (shortest text that reads back exactly), `true` or `false`, text, or empty for
"unknown". A file that ends in the middle of a line was cut off there; that line is not a row.
"""

from __future__ import annotations

import csv
import os
import threading
import tomllib
from collections.abc import Callable
from importlib import resources
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.files import read_bytes, write_bytes

Columns = dict[str, NDArray[Any]]
KNOWN = ("simulated_s", "round")
"""Columns in which no cell is empty."""
TEXT = "name"
"""A column that is never of numbers, whatever it looks like."""
MANY = 1000
"""Rows; from here on it pays to read in another way."""
WORD = 12


class Schema(Struct, frozen=True):
    """One kind of row. Rows may have further columns, the same in all rows of a run."""

    meaning: str
    columns: dict[str, str]
    """What every row has, with its meaning."""
    further: str = ""
    detail: bool = False
    """For looking closely: `load_run` does not read it, `Run.detail` does when asked."""


TABLES = msgspec.convert(
    tomllib.loads(resources.files("plexus.runs").joinpath("tables.toml").read_text(encoding="utf-8")),
    dict[str, Schema],
)


# Writing


def line(values: tuple[Any, ...]) -> str:
    """One row as a line of CSV, without its end."""
    return ",".join(map(_cell, values))


def _cell(value: Any) -> str:
    if (write := _WRITE.get(type(value))) is not None:
        return write(value)
    if isinstance(value, np.generic):
        return _cell(value.item())
    raise TypeError(f"a cell holds a number, truth value or text, not {value!r}")


def _text(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError(f"a cell is one line of text, not {value!r}")
    quoted = '"' + value.replace('"', '""') + '"'
    return quoted if "," in value or '"' in value else value


_WRITE: dict[type, Callable[[Any], str]] = {
    float: repr,
    int: str,
    bool: lambda value: "true" if value else "false",
    str: _text,
    type(None): lambda value: "",
}


def sort(path: Path) -> None:
    """Put the rows of a table into the order of their times, its first column."""
    header, *body = read_bytes(path).splitlines(keepends=True)
    ordered = sorted(body, key=lambda row: float(row.partition(b",")[0]))
    if ordered != body:
        write_bytes(path, b"".join([header, *ordered]))


# Reading


def rows(table: Columns) -> int:
    return len(next(iter(table.values()), ()))


def read(path: Path) -> Columns:
    """The columns of the table at `path`, each with the narrowest type that holds all its cells.

    None at all where the file does not exist: no row was recorded.
    """
    return TableReader(path).columns()


def checked(columns: Columns, path: Path) -> Columns:
    """`columns`, if they are what the table in the file `path` has and, but in details, numbers."""
    table = TABLES[path.stem]
    for each in table.columns if columns else ():
        if each not in columns:
            raise PlexusError(f"{path}: no column {each}")
    for each, values in columns.items() if not table.detail else ():
        is_number = values.dtype.kind in "bif"
        if not is_number or (each in KNOWN and not np.isfinite(values).all()):
            raise PlexusError(f"{path}: {each} is not a number in every row")
    return columns


class TableReader:
    """The columns of one file, whole or still growing: a further look takes in only what was appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._inode = 0
        self._read_bytes = 0
        self._header: list[str] = []
        self._columns: Columns = {}

    def columns(self) -> Columns:
        """All rows so far. None at all where there is no file."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    self._catch_up(file)
            except FileNotFoundError:
                self._reset()
            except OSError as error:
                raise PlexusError(f"{self._path}: {error.strerror}") from None
            except (ValueError, csv.Error) as error:
                self._reset()  # the next look finds the same, not the rows behind the damage
                raise PlexusError(f"{self._path}: {error}") from None
            return self._columns

    def _catch_up(self, file: BufferedReader) -> None:
        size = file.seek(0, 2)
        inode = os.fstat(file.fileno()).st_ino
        if size < self._read_bytes or (self._inode and inode != self._inode):
            self._reset()  # a run was resumed or replaced: its tables begin anew
        self._inode = inode
        file.seek(self._read_bytes)
        text = file.read(size - self._read_bytes)
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        lines = whole.decode().split("\n")[:-1]
        if lines and not self._header:
            self._header = next(csv.reader(lines[:1]))
            lines = lines[1:]
        if lines:
            self._append(lines)

    def _append(self, lines: list[str]) -> None:
        may_be_quick = len(lines) >= MANY and TEXT not in self._header
        fresh = quickly(lines, len(self._header)) if may_be_quick else None
        found = dict(zip(self._header, fresh or self._closely(lines), strict=True))
        if self._columns:
            found = {name: _joined(old, found[name]) for name, old in self._columns.items()}
        self._columns = found

    def _closely(self, lines: list[str]) -> list[NDArray[Any]]:
        width, body = len(self._header), list(csv.reader(lines))
        for number, row in enumerate(body, start=2 + rows(self._columns)):
            if len(row) != width:
                raise ValueError(f"line {number} has {len(row)} cells, the header {width}")
        columns = zip(self._header, zip(*body, strict=True), strict=True)
        return [np.array(cells) if name == TEXT else _column(cells) for name, cells in columns]


def _column(cells: tuple[str, ...]) -> NDArray[Any]:
    """Cells with the narrowest type that holds all of them."""
    if all(cell in ("true", "false") for cell in cells):
        return np.array([cell == "true" for cell in cells])
    for kind in (int, float):
        try:
            return np.array([kind(cell or "nan") for cell in cells], np.dtype(kind))
        except (ValueError, OverflowError):
            continue
    return np.array(cells)


def quickly(lines: list[str], width: int) -> list[NDArray[Any]] | None:
    """The columns of many plain rows, by numpy's reader; None where it takes a closer look.

    It must be told the types. They are guessed from two rows; a wrong guess is noticed.
    """
    ends = [lines[0].split(","), lines[-1].split(",")]
    if {len(row) for row in ends} != {width} or any('"' in each for each in lines):
        return None
    guesses = [_column(cells).dtype for cells in zip(*ends, strict=True)]
    types = [(f"{i}", guess if guess.kind in "if" else f"U{WORD}") for i, guess in enumerate(guesses)]
    try:
        found = np.loadtxt(lines, np.dtype(types), comments=None, delimiter=",", ndmin=1)
    except ValueError:
        return None
    columns = [found[name] for name, _ in types]
    for i, words in enumerate(columns):
        if words.dtype.kind == "U":
            is_true, lengths = words == "true", np.char.str_len(words)
            if (is_true | (words == "false")).all():
                columns[i] = is_true
            elif lengths.min() == 0 or lengths.max() == WORD:  # unknown, or perhaps cut off
                return None
    return columns if len(found) == len(lines) else None


def _joined(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Cells that looked like numbers or truth values so far may turn out to be text."""
    kinds = {old.dtype.kind, new.dtype.kind}
    if len(kinds) > 1 and kinds & {"U", "b"}:
        old, new = _as_text(old), _as_text(new)
    return np.concatenate([old, new])


def _as_text(column: NDArray[Any]) -> NDArray[Any]:
    words = {True: "true", False: "false"} if column.dtype.kind == "b" else {}
    return np.array(["" if value != value else words.get(value, str(value)) for value in column.tolist()])
