"""Tables in CSV files as examples: numbers and words in, tensors of similar size out.

What is learned of a table (its columns, classes and scales) is a `Schema`. It belongs to a session as its
model does: every peer reads its own table by it, and so does whoever predicts.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.files import read_bytes, write_json
from plexus.learn import partition
from plexus.learn.task import Examples
from plexus.rng import array_stream

MANY_WORDS = 50
"""A column of more different words than this is a name or a text, not a property."""
MANY_CLASSES = 30
"""A target of more different whole numbers than this is a quantity."""

GAPS = ("", "nan", "na", "n/a", "null", "none")
"""In a column of numbers, no number. Infinite numbers are none either."""
NO_WORD = ("", "nan", "na", "n/a", "null")
"""In a column of words to learn from, no word; `none` may be one."""
NO_CLASS = ("", "nan", "inf", "-inf")
"""In a column of words, nothing that somebody wrote there."""

Target = Literal["auto", "classes", "number"]
Cells = dict[str, list[str]]
"""By column, what stands in each row."""


@dataclass(frozen=True)
class CsvTable:
    """A CSV file, ready to learn from."""

    inputs: NDArray[np.float32]
    """A row per line. Numbers have mean 0 and standard deviation 1; of a column of words, each word is
    a column of zeros and ones."""
    targets: NDArray[Any]
    """Numbers of classes; or quantities, with mean 0 and standard deviation 1."""
    schema: Schema
    """How the one became the other."""
    owners: NDArray[np.str_] | None
    """Whose each row is, if a column says so."""
    notes: tuple[str, ...]
    """What of the file is not here, and what is here that is not in the file."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the columns of `inputs` are called."""
        return self.schema.names

    @property
    def classes(self) -> tuple[str, ...]:
        """What class 0, 1, … is called; none where the target is a quantity."""
        return self.schema.classes

    @property
    def width(self) -> int:
        """How many inputs an example has."""
        return int(self.inputs.shape[1])

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        """These rows as tensors; an example's id is its row."""
        return Examples(torch.from_numpy(self.inputs[rows]), torch.from_numpy(self.targets[rows]), rows)

    def split(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to train on and to test on; the same every time, so that scales say nothing of the latter."""
        return split_rows(len(self))


class Scale(Struct, frozen=True):
    """What brings numbers to mean 0 and standard deviation 1."""

    mean: float
    deviation: float

    @staticmethod
    def of(values: NDArray[np.float64]) -> Scale:
        filled = np.where(np.isnan(values), np.nanmean(values), values)
        is_one = np.nanmin(values) == np.nanmax(values)  # with a deviation, where their mean is rounded
        return Scale(float(filled.mean()), 1.0 if is_one else float(filled.std()) or 1.0)

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Where there is no number, the mean."""
        filled = np.where(np.isnan(values), self.mean, values)
        return np.asarray((filled - self.mean) / self.deviation, np.float32)


class Column(Struct, frozen=True):
    """A column to learn from: of numbers, or of words."""

    name: str
    scale: Scale | None = None
    words: tuple[str, ...] = ()
    """Each becomes a column of zeros and ones."""

    def inputs(self, cells: list[str], where: Path, notes: list[str]) -> NDArray[np.float32]:
        """What a model takes for these cells; what is not as it was learned is noted."""
        if self.scale is None:
            others = [cell for cell in cells if cell not in self.words]
            if gaps := sum(cell.lower() in NO_WORD for cell in others):
                notes.append(f"{gaps} gaps in {self.name!r} (empty or NA) count as no word")
            if unknown := sorted({cell for cell in others if cell.lower() not in NO_WORD}):
                shown = ", ".join(map(repr, unknown[:3])) + (", …" if len(unknown) > 3 else "")
                notes.append(f"words in {self.name!r} that the schema does not know count as none: {shown}")
            return np.array([[cell == word for word in self.words] for cell in cells], np.float32)
        try:
            found = as_numbers(cells)
        except ValueError:
            raise _no_number(where, self.name) from None
        if gaps := int(np.isnan(found).sum()):
            notes.append(f"{gaps} gaps in {self.name!r} (empty, NaN or infinite) are its mean")
        return self.scale.apply(found)[:, None]


class Schema(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was learned of a table: how its rows become examples, here and on every other machine."""

    target: str
    classes: tuple[str, ...] = ()
    """None where the target is a quantity."""
    scale: Scale | None = None
    """Of a target that is a quantity."""
    owner: str | None = None
    columns: tuple[Column, ...]
    dropped: tuple[str, ...] = ()
    """Columns that nothing is learned from."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the inputs are called."""
        names = ([f"{each.name}={word}" for word in each.words] or [each.name] for each in self.columns)
        return tuple(name for own in names for name in own)

    @property
    def width(self) -> int:
        """How many inputs an example has."""
        return len(self.names)

    def read(self, path: Path | str, rows: Cells | None = None) -> CsvTable:
        """The table at `path`, checked against this schema: whose it is makes no difference."""
        path = Path(path)
        cells = read_columns(path) if rows is None else rows
        notes: list[str] = []
        if self.target not in cells:
            raise PlexusError(f"{path} has no column {self.target!r}, which is to be predicted")
        cells, targets = self._targets(path, cells, notes)
        # One's own table need not say whose it is.
        owners = np.array(cells[self.owner]) if self.owner in cells else None
        return CsvTable(self.inputs(path, cells, notes), targets, self, owners, tuple(notes))

    def inputs(self, path: Path, cells: Cells, notes: list[str]) -> NDArray[np.float32]:
        """What a model takes for these rows."""
        used = {each.name for each in self.columns}
        for name in sorted(used - cells.keys()):
            raise PlexusError(f"{path} has no column {name!r}, which the schema learns from")
        others = cells.keys() - used - {self.target, self.owner} - set(self.dropped)
        notes += [f"left out, as the schema does not know it: {name!r}" for name in cells if name in others]
        return np.concatenate([each.inputs(cells[each.name], path, notes) for each in self.columns], axis=1)

    def _targets(self, path: Path, cells: Cells, notes: list[str]) -> tuple[Cells, NDArray[Any]]:
        if self.scale is not None:
            cells, more = _with_target(path, cells, self.target)
            notes += more
            try:
                return cells, self.scale.apply(as_numbers(cells[self.target]))
            except ValueError:
                raise _no_number(path, self.target) from None
        number_of = {form(word): at for form in (_same, str) for at, word in enumerate(self.classes)}
        found = [number_of.get(cell, number_of.get(_same(cell))) for cell in cells[self.target]]
        known = [number is not None for number in found]
        if gone := len(known) - sum(known):
            notes.append(f"{gone} rows left out, as they have no class of the schema in {self.target!r}")
        if sum(known) < 2:
            raise PlexusError(f"{path}: {sum(known)} rows have a class of the schema in {self.target!r}")
        cells = {name: list(compress(each, known)) for name, each in cells.items()}
        return cells, np.array([number for number in found if number is not None], np.int64)

    def words(self, outputs: NDArray[Any]) -> list[str]:
        """What a model's outputs for some rows mean: the name of a class, or a quantity as it was written."""
        if self.scale is None:
            return [self.classes[at] for at in outputs.argmax(axis=-1)]
        flat = outputs.reshape(len(outputs)).astype(np.float64)
        return [f"{value:.6g}" for value in flat * self.scale.deviation + self.scale.mean]

    @property
    def hash(self) -> str:
        """Names the schema: equal ones, equal hash."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    def save(self, path: Path) -> None:
        """To be read by `read_schema`."""
        write_json(path, self)


def read_schema(path: Path | str, expected: str | None = None) -> Schema:
    """The schema in a file that `plexus new --csv` wrote; with `expected`, only if it has that hash."""
    try:
        schema = msgspec.json.decode(read_bytes(Path(path)), type=Schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlexusError(f"{path}: not a schema: {error}") from None
    if expected is not None and schema.hash != expected:
        raise PlexusError(f"{path}: is schema {schema.hash}, the session's is {expected}")
    return schema


def split_rows(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Three quarters to train on, a quarter to test on."""
    return partition.split(count, 0.25, array_stream(1, "split"))


def read_csv(
    path: Path | str,
    target: str,
    *,
    owner: str | None = None,
    ignore: Sequence[str] = (),
    kind: Target = "auto",
    train_only: bool = False,
) -> CsvTable:
    """A table with a header, `target` being the column to predict.

    Numbers become columns of their own, words a column per word (one-hot). What is empty, NaN or infinite
    in a column of numbers becomes its mean; rows without a target and columns without anything are left
    out. `owner` names a column that says whose a row is; it is not learned from, nor is what `ignore` lists.
    The target is a class if it is a word or one of a few whole numbers, unless `kind` says. Scales are of
    all rows, or with `train_only` of those that `CsvTable.split` trains on.
    """
    path = Path(path)
    cells = read_columns(path)
    for name in (target, *([owner] if owner else []), *ignore):
        if name not in cells:
            raise PlexusError(f"{path} has no column {name!r}; it has {', '.join(cells)}")
    cells, notes = _with_target(path, cells, target)
    rows = split_rows(len(cells[target]))[0].tolist() if train_only else range(len(cells[target]))
    others = {name: each for name, each in cells.items() if name not in (target, owner, *ignore)}
    empty = [n for n, each in others.items() if all(c.lower() in (*GAPS, *NO_CLASS) for c in each)]
    notes += [f"left out, as there is nothing in it: {name!r}" for name in empty]
    dropped = (*ignore, *empty)
    columns = tuple(_column(path, n, each, rows) for n, each in others.items() if n not in empty)
    if not columns:
        gone = f"; left out: {', '.join(map(repr, dropped))}" if dropped else ""
        raise PlexusError(f"{path}: no column is left to learn from{gone}")
    classes, scale = _goal(path, target, cells[target], kind, rows)
    goal: dict[str, Any] = {"target": target, "classes": classes, "scale": scale}
    table = Schema(**goal, owner=owner, columns=columns, dropped=dropped).read(path, cells)
    return replace(table, notes=(*notes, *table.notes))


def _with_target(path: Path, columns: Cells, target: str) -> tuple[Cells, list[str]]:
    """The rows that say what is to be predicted, and a note on how many do not."""
    cells, found = columns[target], numbers(columns[target])
    kept = [cell.lower() not in NO_CLASS for cell in cells] if found is None else (~np.isnan(found)).tolist()
    left = sum(kept)
    if left < 2:
        raise PlexusError(f"{path}: {left} rows have something in {target!r}, the column to predict")
    gone = len(cells) - left
    notes = [f"{gone} rows left out, as they have nothing in {target!r}"] if gone else []
    return {name: list(compress(each, kept)) for name, each in columns.items()}, notes


def read_columns(path: Path, least: int = 2) -> Cells:
    """The cells of each column, as they stand in the file, which has at least so many rows."""
    (_, header), *rows = list(_rows(path)) or [(0, [])]
    header = [name.strip() for name in header]
    if (why := _wrong(header)) or len(rows) < least:
        few = "two rows" if least == 2 else "a row"
        raise PlexusError(f"{path}: expected a header of different names and at least {few} below it{why}")
    for line, row in rows:
        if len(row) != len(header):
            raise PlexusError(f"{path}: line {line} has {len(row)} cells, the header {len(header)}")
    return {name: [row[at].strip() for _, row in rows] for at, name in enumerate(header)}


def _wrong(header: Sequence[str]) -> str:
    if "" in header:
        return f": column {header.index('') + 1} has no name (an index? then name it, or leave it out)"
    twice = [name for at, name in enumerate(header) if name in header[:at]]
    return f": two columns are called {twice[0]!r}" if twice else ""


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The header and all below it, without empty lines; and the line of the file that each ends with."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise PlexusError(f"{path}: {reason}") from None
    delimiter = max(",;\t|", key=text.lstrip("\n").split("\n", 1)[0].count)
    # Not `splitlines`: what it takes for the end of a line may be in a cell, a line feed in quotes.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as error:
        raise PlexusError(f"{path}: line {reader.line_num}: {error} (is a quote left open?)") from None


def numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """A column as numbers, NaN where there is none; None if it has a word in it, or nothing else."""
    try:
        found = as_numbers(cells)
    except ValueError:
        return None
    return None if np.isnan(found).all() else found


def as_numbers(cells: Sequence[str]) -> NDArray[np.float64]:
    """A column as numbers, NaN where there is none; ValueError if it has a word in it."""
    found = np.array([np.nan if cell.lower() in GAPS else float(cell) for cell in cells])
    found[np.isinf(found)] = np.nan
    return found


def _no_number(path: Path, name: str) -> PlexusError:
    """Names the first line of the file that has a word among numbers."""
    lines = [line for line, _ in _rows(path)][1:]
    for line, cell in zip(lines, read_columns(path, least=1)[name], strict=True):
        try:
            as_numbers([cell])
        except ValueError:
            said = f"line {line} has {cell!r}"
            break
    return PlexusError(f"{path}: column {name!r} is one of numbers, but {said}")


def has_many_words(cells: Sequence[str]) -> bool:
    """Whether a column is a name or a text that says nothing about its row."""
    return numbers(cells) is None and len(set(cells)) > MANY_WORDS


def is_class(cells: Sequence[str]) -> bool:
    """Whether a target is one of a few kinds."""
    if (found := numbers(cells)) is None:
        return True
    whole = bool(np.all(found == np.round(found)))
    return whole and len(np.unique(found)) <= min(MANY_CLASSES, len(cells) // 2)


def _column(path: Path, name: str, cells: list[str], rows: Sequence[int]) -> Column:
    if (found := numbers(cells)) is not None:
        chosen = found[rows]
        return Column(name, _scale(path, name, found if np.isnan(chosen).all() else chosen))
    words = sorted({cell for cell in cells if cell.lower() not in NO_WORD})
    if len(words) > MANY_WORDS:
        remedy = "leave it out (ignore), or say that it names the owner of a row (owner)"
        raise PlexusError(f"{path}: column {name!r} has {len(words)} different words: {remedy}")
    return Column(name, words=tuple(words))


def _goal(
    path: Path, name: str, cells: list[str], kind: Target, rows: Sequence[int]
) -> tuple[tuple[str, ...], Scale | None]:
    """The classes of a target, or the scale of one that is a quantity."""
    if kind == "classes" or (kind == "auto" and is_class(cells)):
        are_numbers = all(numbers([each]) is not None for each in set(cells))
        as_one = {_same(cell) if are_numbers else cell: cell for cell in sorted(set(cells), reverse=True)}
        classes = sorted(as_one.values(), key=float if are_numbers else str)
        if len(classes) < 2:
            raise PlexusError(f"{path}: {name!r} is {classes[0]!r} in every row")
        return tuple(classes), None
    if (found := numbers(cells)) is None:
        raise PlexusError(f"{path}: {name!r} has words in it, so it cannot be a number")
    return (), _scale(path, name, found[rows])


def _same(cell: str) -> str:
    """A class, however it is written: programs make 1.0 of 1 where a column has gaps."""
    whole, _, rest = cell.partition(".")
    return whole if whole.lstrip("-").isdecimal() and not rest.strip("0") else cell


def _scale(path: Path, name: str, values: NDArray[np.float64]) -> Scale:
    with np.errstate(all="ignore"):
        scale = Scale.of(values)
    if not np.isfinite([scale.mean, scale.deviation]).all():
        largest = values[np.nanargmax(np.abs(values))]
        raise PlexusError(f"{path}: column {name!r} has {largest:g}, too large to learn from: leave it empty")
    return scale
