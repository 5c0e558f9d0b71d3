"""A table as named numpy columns: what `Run.metrics` and its kin are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from numpy.typing import NDArray

from plexus.errors import PlexusError

ROWS_SHOWN = 10


class Frame(Mapping[str, NDArray[Any]]):
    """Columns of equal length, by name. Reads like a dictionary of numpy arrays."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._columns = dict(columns)
        lengths = {len(column) for column in self._columns.values()}
        assert len(lengths) <= 1, f"columns of different lengths: {lengths}"
        self.rows: int = lengths.pop() if lengths else 0
        """How many rows there are."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            return self._columns[name]
        except KeyError:
            known = ", ".join(self._columns) or "none: the table has no rows"
            raise KeyError(f"no column {name!r}; there are {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, number: int) -> dict[str, Any]:
        """One row as plain values; -1 is the last."""
        return {name: column[number].item() for name, column in self._columns.items()}

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`; needs pandas, which Plexus itself does not."""
        try:
            import pandas
        except ImportError:
            raise PlexusError("to_pandas() needs the package pandas: pip install pandas") from None
        return pandas.DataFrame(self._columns)

    def __repr__(self) -> str:
        return f"<{self.rows} rows of {', '.join(self._columns) or 'nothing'}>"

    def _repr_html_(self) -> str:
        """For notebooks: the first rows and the last."""
        half = ROWS_SHOWN // 2
        everything = self.rows <= ROWS_SHOWN
        shown = range(self.rows) if everything else [*range(half), *range(-half, 0)]
        lines = [_html("th", self._columns)]
        for position, row in enumerate(shown):
            if not everything and position == half:
                lines.append(_html("td", ["…"] * len(self._columns)))
            lines.append(_html("td", map(_cell, self.row(row).values())))
        return f"<table>{''.join(lines)}</table><p>{self.rows} rows</p>"


def _html(tag: str, cells: Any) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
