"""What a report consists of: sections with pictures and tables. How they look is decided elsewhere."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plexus.style import Figure


@dataclass(frozen=True)
class Quantity:
    """A number with the text that people read; programs get the number itself."""

    text: str
    value: float | None
    spread: float | None = None
    """Half the width of the interval that holds the true mean in 95 of 100 cases, where there are seeds."""

    def meets(self, other: Quantity) -> bool:
        """Whether their intervals do; nothing is known of a single seed."""
        if self.value is None or self.spread is None or other.value is None or other.spread is None:
            return False
        return abs(self.value - other.value) <= self.spread + other.spread


STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""Quantiles of Student's t for two-sided intervals of 95 %, by degrees of freedom from 1."""

Cell = str | int | float | Quantity | None


def half_width_95(*samples: Sequence[float]) -> float:
    """Of the interval around a mean that holds the true one in 95 of 100 cases, by Student's t; of two
    samples, around the difference of their means, by Welch's. Infinite where there is but one value."""
    if min(map(len, samples)) < 2:
        return math.inf
    squares = [statistics.variance(each) / len(each) for each in samples]
    if not (square := sum(squares)):
        return 0.0
    apart = sum(of**2 / (len(each) - 1) for of, each in zip(squares, samples, strict=True))
    freedom = math.floor(square**2 / apart + 1e-9)
    if freedom <= len(STUDENT_95):
        return STUDENT_95[freedom - 1] * math.sqrt(square)
    z = 1.959964  # behind the table by the series of Cornish and Fisher, which there is right to four digits
    quantile = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return quantile * math.sqrt(square)


def over_seeds(values: Sequence[float], write: Callable[[float], str]) -> Quantity:
    """The mean over seeds and, if there are several, how far it may be off."""
    if not values:
        return Quantity("–", None)
    mean = statistics.fmean(values)
    if len(values) == 1 or not math.isfinite(mean):
        return Quantity(write(mean), mean)
    spread = half_width_95(values)
    bare, _, unit = write(mean).partition(" ")
    decimals = len(bare.partition(".")[2])
    # The text may be in another unit than the value (percent, kB), by a power of ten: the spread follows.
    shown = float(bare.replace(",", ""))
    scale = 10.0 ** round(math.log10(shown / mean)) if mean and shown else 1.0
    around = f"{scale * spread:,.{decimals}f}"
    if spread and not float(around.replace(",", "")):  # seeds differ, be it ever so little
        around = f"{scale * spread:.1g}"
    return Quantity(f"{bare} ± {around} {unit}".rstrip(), mean, spread)


@dataclass(frozen=True)
class Table:
    """Rows under columns; `id` names its files and its place on the page."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """What the reader has to know to read it."""
    folded: bool = False
    """Whether the page shows it only on demand."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.id}: a row of {len(row)} under {self.columns}")


@dataclass(frozen=True)
class Picture:
    id: str
    title: str
    caption: str
    figure: Figure
    paper: str | None = None
    """What the paper reports of the same thing, in words and numbers."""


@dataclass(frozen=True)
class Section:
    """A part of the page; `text` is paragraphs, apart by an empty line."""

    id: str
    title: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()


def heading(title: str) -> str:
    """A title that begins with a capital, unless it begins with the symbol of a quantity, as `n = 1000`."""
    word, _, rest = title.partition(" ")
    return title if rest.startswith("=") or len(word) < 2 else title[0].upper() + title[1:]


def text_of(cell: Cell) -> str:
    if isinstance(cell, Quantity):
        return cell.text
    if cell is None:
        return "–"
    if isinstance(cell, int):
        return f"{cell:,}"
    return number(cell) if isinstance(cell, float) else cell


def number(value: float) -> str:
    """Three digits that matter, thousands apart, without exponents where they can be spared."""
    if not math.isfinite(value):
        return "–"
    if value != 0 and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, min(digits, 6))}f}"


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds quantities, which stand to the right."""
    return any(isinstance(row[column], Quantity | int | float) for row in table.rows)
