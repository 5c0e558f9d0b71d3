"""Tables in CSV files as examples: numbers and words in, tensors of similar size out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.learn.task import Examples

MANY_WORDS = 50
"""A column of more different words than this is a name or a text, not a property."""
MANY_CLASSES = 30
"""A target of more different whole numbers than this is a quantity."""

GAPS = ("", "nan", "na", "n/a", "null", "none")
"""In a column of numbers, no number. Infinite numbers are none either."""
NO_CLASS = ("", "nan", "inf", "-inf")
"""In a column of words, nothing that somebody wrote there."""

Target = Literal["auto", "classes", "number"]


@dataclass(frozen=True)
class CsvTable:
    """A CSV file, ready to learn from."""

    inputs: NDArray[np.float32]
    """A row per line. Numbers have mean 0 and standard deviation 1; of a column of words, each word is
    a column of zeros and ones."""
    targets: NDArray[Any]
    """Numbers of classes; or quantities, with mean 0 and standard deviation 1."""
    columns: tuple[str, ...]
    """What the columns of `inputs` are called."""
    classes: tuple[str, ...]
    """What class 0, 1, … is called; none where the target is a quantity."""
    owners: NDArray[np.str_] | None
    """Whose each row is, if a column says so."""
    notes: tuple[str, ...]
    """What of the file is not here, and what is here that is not in the file."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def width(self) -> int:
        """How many inputs an example has."""
        return int(self.inputs.shape[1])

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        """These rows as tensors; an example's id is its row."""
        return Examples(torch.from_numpy(self.inputs[rows]), torch.from_numpy(self.targets[rows]), rows)


def read_csv(
    path: Path | str,
    target: str,
    *,
    owner: str | None = None,
    ignore: Sequence[str] = (),
    kind: Target = "auto",
) -> CsvTable:
    """The table at `path`, which has a header. `target` is the column to predict.

    Cells may be separated by commas, semicolons, tabs or bars. A gap in a column of numbers (nothing, NaN,
    something infinite) is its column's mean; rows without a target and columns without anything are left
    out. `owner` names a column that says whose a row is; it is not learned from, nor is what `ignore` lists.
    The target is a class if it is a word or one of a few whole numbers, unless `kind` says.
    """
    path = Path(path)
    columns = read_columns(path)
    for name in (target, *([owner] if owner else []), *ignore):
        if name not in columns:
            raise PlexusError(f"{path} has no column {name!r}; it has {', '.join(columns)}")
    columns, notes = _with_target(path, columns, target)
    owners = np.array(columns.pop(owner)) if owner else None
    targets, classes = _targets(path, target, columns.pop(target), kind)
    pieces: list[NDArray[np.float32]] = []
    names: list[str] = []
    for name, cells in columns.items():
        if name in ignore:
            continue
        if all(cell.lower() in (*GAPS, *NO_CLASS) for cell in cells):
            notes.append(f"left out, as there is nothing in it: {name!r}")
            continue
        piece, of, gaps = _inputs(path, name, cells)
        pieces.append(piece)
        names += of
        if gaps:
            notes.append(f"{gaps} gaps in {name!r} (empty, NaN or infinite) are its mean")
    if not pieces:
        raise PlexusError(f"{path}: no column is left to learn from")
    inputs = np.concatenate(pieces, axis=1)
    return CsvTable(inputs, targets, tuple(names), classes, owners, tuple(notes))


def _with_target(
    path: Path, columns: dict[str, list[str]], target: str
) -> tuple[dict[str, list[str]], list[str]]:
    """The rows that say what is to be predicted, and a note on how many do not."""
    cells, found = columns[target], numbers(columns[target])
    kept = [cell.lower() not in NO_CLASS for cell in cells] if found is None else (~np.isnan(found)).tolist()
    left = sum(kept)
    if left < 2:
        raise PlexusError(f"{path}: {left} rows have something in {target!r}, the column to predict")
    gone = len(cells) - left
    notes = [f"{gone} rows left out, as they have nothing in {target!r}"] if gone else []
    return {name: list(compress(each, kept)) for name, each in columns.items()}, notes


def read_columns(path: Path) -> dict[str, list[str]]:
    """The cells of each column, as they stand in the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise PlexusError(f"{path}: {reason}") from None
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t|", key=first.count)
    header, *rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row] or [[]]
    header = [name.strip() for name in header]
    if len(rows) < 2 or len(set(header)) != len(header) or "" in header:
        raise PlexusError(f"{path}: expected a header of different names and at least two rows below it")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise PlexusError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}")
    return {name: [row[at].strip() for row in rows] for at, name in enumerate(header)}


def numbers(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """A column as numbers, NaN where there is none; None if it has a word in it, or nothing else."""
    try:
        found = np.array([np.nan if cell.lower() in GAPS else float(cell) for cell in cells])
    except ValueError:
        return None
    found[np.isinf(found)] = np.nan
    return None if np.isnan(found).all() else found


def has_many_words(cells: Sequence[str]) -> bool:
    """Whether a column is a name or a text that says nothing about its row."""
    return numbers(cells) is None and len(set(cells)) > MANY_WORDS


def is_class(cells: Sequence[str]) -> bool:
    """Whether a target is one of a few kinds."""
    found = numbers(cells)
    if found is None:
        return True
    whole = bool(np.all(found == np.round(found)))
    return whole and len(np.unique(found)) <= min(MANY_CLASSES, len(cells) // 2)


def _inputs(path: Path, name: str, cells: list[str]) -> tuple[NDArray[np.float32], list[str], int]:
    """The columns that a column becomes, their names, and how many gaps were filled."""
    found = numbers(cells)
    if found is not None:
        return _standard(found)[:, None], [name], int(np.isnan(found).sum())
    words = sorted(set(cells))
    if len(words) > MANY_WORDS:
        raise PlexusError(
            f"{path}: column {name!r} has {len(words)} different words: leave it out (ignore), or"
            " say that it names the owner of a row (owner)"
        )
    hot = np.array([[cell == word for word in words] for cell in cells], np.float32)
    return hot, [f"{name}={word}" for word in words], 0


def _standard(values: NDArray[np.float64]) -> NDArray[np.float32]:
    filled = np.where(np.isnan(values), np.nanmean(values), values)
    spread = filled.std()
    scaled = (filled - filled.mean()) / (spread if spread > 0 else 1.0)
    return np.asarray(scaled, np.float32)


def _targets(path: Path, name: str, cells: list[str], kind: Target) -> tuple[NDArray[Any], tuple[str, ...]]:
    if kind == "classes" or (kind == "auto" and is_class(cells)):
        are_numbers = all(numbers([each]) is not None for each in set(cells))
        classes = sorted(set(cells), key=float if are_numbers else str)
        if len(classes) < 2:
            raise PlexusError(f"{path}: {name!r} is {classes[0]!r} in every row")
        number_of = {word: number for number, word in enumerate(classes)}
        return np.array([number_of[cell] for cell in cells], np.int64), tuple(classes)
    found = numbers(cells)
    if found is None:
        raise PlexusError(f"{path}: {name!r} has words in it, so it cannot be a number")
    return _standard(found), ()
