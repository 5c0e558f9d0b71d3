"""A table that may still be written to: each look takes in only what was appended since the last."""

from __future__ import annotations

import csv
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.runs.tables import Columns, column

LARGE = 50_000
"""Characters; from here on it pays to read in another way."""
WORD = 12


class GrowingTable:
    """The columns of one CSV file, kept up to date."""

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
            except (PlexusError, UnicodeDecodeError, csv.Error) as error:
                self._reset()  # the next look finds the same, not the rows behind the damage
                reason = error if isinstance(error, PlexusError) else f"{self._path}: {error}"
                raise PlexusError(str(reason)) from None
            return self._columns

    def try_columns(self) -> None:
        """As `columns`, for later: who asks then will be told what is wrong."""
        with suppress(PlexusError):
            self.columns()

    def _catch_up(self, file: Any) -> None:
        size = file.seek(0, 2)
        inode = self._path.stat().st_ino
        if size < self._read_bytes or (self._inode and inode != self._inode):
            self._reset()  # a run was resumed or replaced: its tables begin anew
        self._inode = inode
        if size == self._read_bytes:
            return
        file.seek(self._read_bytes)
        text: bytes = file.read(size - self._read_bytes)
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        self._append(whole.decode())

    def _append(self, text: str) -> None:
        if not self._header and text:
            first, _, text = text.partition("\n")
            self._header = next(csv.reader([first]))
        if not text:
            return
        fresh = dict(zip(self._header, self._cells(text), strict=True))
        if not self._columns:
            self._columns = fresh
        else:
            self._columns = {name: _joined(old, fresh[name]) for name, old in self._columns.items()}

    def _cells(self, text: str) -> list[NDArray[Any]]:
        width = len(self._header)
        if len(text) > LARGE:
            found = quickly(text, width)
            if found is not None:
                return found
        if '"' in text:
            rows = list(csv.reader(text.split("\n")[:-1]))
            cells = [cell for row in rows for cell in row]
        else:
            cells = text[:-1].replace("\n", ",").split(",")
        if len(cells) != width * text.count("\n"):
            raise PlexusError(f"{self._path}: a row has not as many cells as the header, {width}")
        return [column(cells[i::width]) for i in range(width)]


def quickly(text: str, width: int) -> list[NDArray[Any]] | None:
    """The columns of many plain rows, by numpy's reader; None where it takes a closer look.

    It must be told the types. They are guessed from two rows; a wrong guess is noticed.
    """
    if '"' in text:
        return None
    lines = text[:-1].split("\n")
    rows = [lines[0].split(","), lines[-1].split(",")]
    if {len(row) for row in rows} != {width}:
        return None
    kinds = [_kind(cells) for cells in zip(*rows, strict=True)]
    names = [f"{i}" for i in range(width)]
    types = np.dtype(list(zip(names, kinds, strict=True)))
    try:
        found = np.loadtxt(lines, types, comments=None, delimiter=",", ndmin=1)
    except ValueError:
        return None
    columns = [found[name] for name in names]
    for i, words in enumerate(columns):
        if words.dtype.kind == "U":
            is_true = words == "true"
            if (is_true | (words == "false")).all():
                columns[i] = is_true
            elif _last_letters(words).any() or (words == "").any():
                return None
    return columns


def _last_letters(words: NDArray[Any]) -> NDArray[Any]:
    """What stands where a word would be cut off: 0 where it ended before."""
    letters: NDArray[Any] = np.ascontiguousarray(words).view(np.uint32).reshape(-1, WORD)
    return letters[:, -1]


def _kind(cells: tuple[str, ...]) -> str:
    for kind, name in ((int, "i8"), (float, "f8")):
        try:
            for cell in cells:
                kind(cell)
        except ValueError:
            continue
        return name
    return f"U{WORD}"


def _joined(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Cells that looked like numbers so far may turn out to be text."""
    if (old.dtype.kind == "U") != (new.dtype.kind == "U"):
        old, new = _text(old), _text(new)
    return np.concatenate([old, new])


def _text(column: NDArray[Any]) -> NDArray[Any]:
    words = {True: "true", False: "false"} if column.dtype.kind == "b" else {}
    return np.array(["" if value != value else words.get(value, str(value)) for value in column.tolist()])
