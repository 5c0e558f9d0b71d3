"""Collects rows while a run goes on and appends them to the files of its tables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError
from plexus.metrics.tables import TABLES, line

_FLUSH_EVERY_S = 1.0
_ROWS_HELD = 1000


class Recorder:
    """One writer for the tables in `directory`.

    Rows reach the file at most a second after they were recorded, whole lines at a time: a run that
    is killed leaves files that can be read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._columns: dict[str, tuple[str, ...]] = {}
        self._pending: dict[str, list[str]] = {}
        self._held = 0
        self._flush_at = 0.0

    def record(self, table: str, **columns: Any) -> None:
        """Append one row. The first row of a table decides its columns."""
        known = self._columns.get(table)
        if known is None:
            known = self._begin(table, tuple(columns))
        if known != tuple(columns):
            if set(known) != set(columns):
                raise ValueError(f"{table} has columns {known}, this row has {tuple(columns)}")
            columns = {name: columns[name] for name in known}
        self._pending[table].append(line(tuple(columns.values())))
        self._held += 1
        if self._held >= _ROWS_HELD or time.monotonic() >= self._flush_at:
            self.flush()

    def flush(self) -> None:
        """Hand everything recorded so far to the operating system."""
        for table, lines in self._pending.items():
            if lines:
                self._append(self._directory / f"{table}.csv", "\n".join(lines) + "\n")
                lines.clear()
        self._held = 0
        self._flush_at = time.monotonic() + _FLUSH_EVERY_S

    def _begin(self, table: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        if table not in TABLES:
            raise ValueError(f"no table {table!r}: declare it in plexus.metrics.tables")
        missing = TABLES[table].columns.keys() - set(columns)
        if missing:
            raise ValueError(f"a row of {table} lacks {', '.join(sorted(missing))}")
        self._columns[table] = columns
        self._pending[table] = [line(columns)]
        return columns

    def _append(self, path: Path, text: str) -> None:
        # One write of whole lines to a file in append mode: nothing else can come between.
        try:
            with path.open("ab", buffering=0) as file:
                data = text.encode()
                while data:
                    data = data[os.write(file.fileno(), data) :]
        except OSError as error:
            raise PlexusError(f"{path}: cannot be written: {error.strerror}") from None
