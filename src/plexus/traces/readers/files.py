"""Trace files as plain values, and errors that name file, record and field.

What a file is follows from its first bytes, not from its name: the official FedScale files have no
suffix at all.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.files import data_directory
from plexus.traces.readers.plain_pickle import loads_plain

DATA_PREFIX = "data:"
MOST_BYTES = 2**27
"""The largest file that is read; the largest published one has 39 MB."""
Record = tuple[str, Mapping[str, object]]
"""What an error message calls it ("client 7", "line 12"), and its fields."""


class CsvFile(Struct, frozen=True):
    header: list[str] | None
    """None where the first line is numbers already."""
    rows: list[list[str]]

    @property
    def first_line(self) -> int:
        return 1 if self.header is None else 2


Content = CsvFile | NDArray[np.float64] | dict[str, object] | list[object]


def find(value: str, base_dir: Path, key: str = "") -> Path:
    """The file that somebody names, in a spec under `key`: `data:` is the data directory, `$NAME` the
    environment, and other paths start from `base_dir`."""
    said, hint = f"{key} = {value!r}: " if key else "", ""
    if value.startswith(DATA_PREFIX):
        path = data_directory() / value.removeprefix(DATA_PREFIX)
        hint = "; `plexus data list` shows what can be fetched or imported"
    else:
        expanded = os.path.expandvars(value)
        if "$" in expanded:
            raise PlexusError(f"{said}an environment variable in {value} is not set")
        path = base_dir / Path(expanded).expanduser()
    if not path.is_file():
        raise PlexusError(f"{said}there is no file {path}{hint}")
    return path


def fault(path: Path, record: str, field: str, problem: str) -> PlexusError:
    """The one line a user needs to find what is wrong."""
    return PlexusError(": ".join(part for part in (str(path), record, field, problem) if part))


def load(path: Path) -> Content:
    """The content of a CSV, JSON, npy or plain pickle file."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise PlexusError(f"{path}: is of {size:,} bytes; at most {MOST_BYTES:,} are read")
        data = path.read_bytes()
    except OSError as error:
        raise PlexusError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        content = _matrix(path) if data.startswith(b"\x93NUMPY") else _decode(data)
    except PlexusError as error:
        raise PlexusError(f"{path}: {error}") from error
    if isinstance(content, CsvFile) and not content.rows:
        raise PlexusError(f"{path}: there are no records in it")
    if isinstance(content, dict):
        return {str(key): value for key, value in content.items()}
    if isinstance(content, CsvFile | list | np.ndarray):
        return content
    raise PlexusError(f"{path}: holds a {type(content).__name__}, not records")


def _decode(data: bytes) -> object:
    if data.startswith((b"\x80", b"(d", b"(l", b"}q", b"]q")):
        return loads_plain(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PlexusError("is neither text, pickle nor npy") from error
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlexusError(f"is not valid JSON ({error})") from error
    return _table(text)


def _matrix(path: Path) -> NDArray[np.float64]:
    try:
        # Mapped: a shape that claims more than the file has is refused, and nothing made for it.
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"it holds {matrix.dtype}")
        return np.array(matrix, np.float64)
    except (ValueError, TypeError, EOFError) as error:
        raise PlexusError(f"is not a readable npy file of numbers ({error})") from error


def _table(text: str) -> CsvFile:
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise PlexusError(f"is not valid CSV ({error})") from error
    # One bad cell does not make a header: it must be reported as what it is.
    if rows and sum(not _is_number(cell) for cell in rows[0]) > len(rows[0]) / 2:
        return CsvFile(rows[0], rows[1:])
    return CsvFile(None, rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def records(path: Path, content: Content) -> list[Record]:
    """The records of a table with a header, a dictionary by client, or a list."""
    named: list[tuple[str, object]] = []
    if isinstance(content, CsvFile) and (header := content.header) is not None:
        for line, row in enumerate(content.rows, content.first_line):
            if (size := len(row)) != len(header):
                raise fault(path, f"line {line}", "", f"has {size} values, the header names {len(header)}")
            named.append((f"line {line}", dict(zip(header, row, strict=True))))
    elif isinstance(content, dict):
        named = [(f"client {key}", value) for key, value in content.items()]
    elif isinstance(content, list):
        named = [(f"record {i}", value) for i, value in enumerate(content)]
    else:
        raise PlexusError(f"{path}: the first line must name the columns")
    if not named:
        raise PlexusError(f"{path}: there are no records in it")
    checked: list[Record] = []
    for name, value in named:
        if not isinstance(value, dict):
            raise fault(path, name, "", f"must be an object with fields, is {short(value)}")
        checked.append((name, value))
    return checked


def number(path: Path, record: str, field: str, value: object, *, positive: bool = False) -> float:
    """`value` as a finite number that is at least 0, or more than 0 where `positive`."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        result = float(value)
        if not math.isfinite(result) or result < 0 or (positive and result == 0):
            raise ValueError
    except (ValueError, OverflowError) as error:
        wanted = "a positive number" if positive else "a number, 0 or more"
        raise fault(path, record, field, f"must be {wanted}, is {short(value)}") from error
    return result


def number_in(path: Path, record: Record, field: str, *, positive: bool = False) -> float:
    if field not in record[1]:
        raise fault(path, record[0], field, "missing")
    return number(path, record[0], field, record[1][field], positive=positive)


def field_of(path: Path, record: Record, names: Sequence[str]) -> str:
    """Which of the synonyms `names` the record has."""
    for name in names:
        if name in record[1]:
            return name
    raise fault(path, record[0], names[0], f"missing (or under the name {' or '.join(names[1:])})")


def counted(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def short(value: object) -> str:
    """What a file holds, for an error message: of a large thing only its beginning is looked at."""
    text = reprlib.repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
