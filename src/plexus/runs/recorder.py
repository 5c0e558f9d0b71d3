"""Collects rows while a run goes on and appends them to the files of its tables."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError
from plexus.files import named, read_bytes, sync, write_bytes
from plexus.runs.tables import TABLES, line

Listener = Callable[[str, Mapping[str, Any]], None]
"""Is given the name of a table and a row of it."""

_FLUSH_EVERY_S = 1.0
_ROWS_HELD = 1000


class Recorder:
    """One writer for the tables in `directory`.

    Rows reach the file at most a second after they were recorded, whole lines at a time: a run that
    is killed leaves files that can be read. With `go_on` rows follow those that are there already, and
    with `most_bytes` a table that has become larger loses the older half of its rows.
    """

    def __init__(self, directory: Path, *, go_on: bool = False, most_bytes: int | None = None) -> None:
        self._directory = directory
        self._goes_on = go_on
        self._most_bytes = most_bytes
        self._columns: dict[str, tuple[str, ...]] = {}
        self._files: dict[str, tuple[int, list[str]]] = {}
        """By table: how long its file is, in bytes, and the lines that are not in it yet."""
        self._held = 0
        self._flush_at = 0.0
        self.listen: Listener = lambda table, row: None
        """Told of every row as it is recorded, with the name of its table; not of those for looking closely,
        which are many."""

    def record(self, table: str, **columns: Any) -> None:
        """Append one row. The first row of a table decides its columns."""
        if (known := self._columns.get(table)) is None:
            known = self._begin(table, tuple(columns))
        if known != tuple(columns):
            if set(known) != set(columns):
                raise ValueError(f"{table} has columns {known}, this row has {tuple(columns)}")
            columns = {name: columns[name] for name in known}
        self._files[table][1].append(line(tuple(columns.values())))
        self._held += 1
        if not TABLES[table].detail:
            self.listen(table, columns)
        if self._held >= _ROWS_HELD or time.monotonic() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Hand everything recorded so far to the operating system.

        Ctrl-C may strike anywhere in here. Lines and length change in one step, so a flush that was cut
        short is done once more at the same place, and no row is lost or written twice.
        """
        for table, (length, lines) in self._files.items():
            if lines:
                data = ("\n".join(lines) + "\n").encode()
                path = self._directory / f"{table}.csv"
                self._write(path, length, data)
                length += len(data)
                if self._most_bytes is not None and length > self._most_bytes:
                    header, *body = read_bytes(path).splitlines(keepends=True)
                    kept = b"".join([header, *body[len(body) // 2 :]])
                    write_bytes(path, kept)
                    length = len(kept)
                self._files[table] = (length, [])
        self._held = 0
        self._flush_at = time.monotonic() + _FLUSH_EVERY_S

    def move_to(self, directory: Path) -> list[str]:
        """Put the files into another directory, each in the place of one of its name, and go on there."""
        self.flush()
        names = [f"{table}.csv" for table in self._files]
        for name in names:
            sync(self._directory / name)
            (self._directory / name).replace(directory / name)
        self._directory = directory
        return names

    def _begin(self, table: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        if table not in TABLES:
            raise ValueError(f"no table {table!r}: declare it in plexus.runs.tables")
        if missing := TABLES[table].columns.keys() - set(columns):
            raise ValueError(f"a row of {table} lacks {', '.join(sorted(missing))}")
        self._files[table] = (0, [line(columns)])
        if self._goes_on:
            path = self._directory / f"{table}.csv"
            known, length = _cut_back(path)
            if set(known) == set(columns):
                columns = known
                self._files[table] = (length, [])
            elif length:  # of another version of Plexus
                path.replace(path.with_name(f"{path.name}.old"))
        self._columns[table] = columns
        return columns

    def _write(self, path: Path, at: int, data: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                while data:
                    written = os.pwrite(descriptor, data, at)
                    at, data = at + written, data[written:]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise PlexusError(f"{path}: cannot be written: {error.strerror}") from None


def _cut_back(path: Path) -> tuple[tuple[str, ...], int]:
    """Cut off what is no whole line; the columns that the table has then, and how many bytes."""
    with named(path):
        data = path.read_bytes() if path.exists() else b""
        length = data.rfind(b"\n") + 1
        if length < len(data):
            os.truncate(path, length)
    header = data[:length].partition(b"\n")[0].decode(errors="replace")
    return tuple(next(csv.reader([header]), ())), length
