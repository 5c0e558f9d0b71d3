"""Reading a run directory: what is there of it, finished, interrupted, killed or still growing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from numpy.typing import NDArray

from plexus import quantities
from plexus.errors import PlexusError, needing
from plexus.files import read_bytes
from plexus.runs.result import Result
from plexus.runs.tables import TABLES, Columns, checked, read

SPEC, VERSIONS, RESULT = "spec.toml", "versions.json", "result.json"
LIVE: Final = "live"
SIMULATED: Final = "simulated"
ROWS_SHOWN = 10


class _Versions(msgspec.Struct):
    """What `versions.json` says at least, and whoever shows runs relies on."""

    spec_digest: str
    packages: dict[str, str] = {}
    kind: Literal["simulated", "live"] = SIMULATED
    started_s: float = 0.0
    homes: list[str] = []
    tags: list[str] = []
    note: str = ""


class _Named(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    """What every run's spec says, and whoever shows runs relies on."""

    name: str
    seed: int
    nodes: int
    hours: float
    protocol: _Named
    task: _Named
    traces: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """A run directory as it was found: finished, interrupted, killed or still growing."""

    path: Path
    spec: dict[str, Any]
    versions: dict[str, Any]
    result: Result | None
    """None where the run did not come to its end."""
    tables: dict[str, Columns]
    """Numpy columns by table; a table without rows has no columns. See `detail` for the large ones."""

    @property
    def is_live(self) -> bool:
        """Whether real peers made it; else it was simulated."""
        return bool(self.versions.get("kind") == LIVE)

    def detail(self, table: str) -> Columns:
        """The columns of any table, read now."""
        return read(self.path / f"{table}.csv")

    @property
    def metrics(self) -> Frame:
        """What each evaluation found, by simulated time: `evaluations.csv`."""
        return Frame(self.tables["evaluations"])

    @property
    def node_metrics(self) -> Frame:
        """The same for nodes with models of their own: `node_evaluations.csv`."""
        return Frame(self.tables["node_evaluations"])

    @property
    def rounds(self) -> Frame:
        """Every aggregation into a global model: `rounds.csv`."""
        return Frame(self.tables["rounds"])

    @property
    def online(self) -> Frame:
        """How many nodes were online, and when: `online.csv`."""
        return Frame(self.tables["online"])

    def __repr__(self) -> str:
        state = "no result yet"
        if self.result is not None:
            metric = self.result.metric
            best = quantities.metric(metric.name, metric.best)
            stopped = ", stopped early" if self.result.interrupted else ""
            state = f"{self.result.rounds} rounds, {metric.name} {best} at best{stopped}"
        return f"<Run {self.path}: {state}>"


def load_run(path: Path | str) -> Run:
    path = Path(path)
    versions, spec, result = versions_of(path), spec_of(path), result_of(path)
    files = {name: path / f"{name}.csv" for name, table in TABLES.items() if not table.detail}
    return Run(path, spec, versions, result, {name: checked(read(at), at) for name, at in files.items()})


def spec_of(path: Path) -> dict[str, Any]:
    path = path / SPEC
    data = read_bytes(path)
    try:
        spec = tomllib.loads(data.decode())
        msgspec.convert(spec, _Spec)
    except ValueError as error:  # not text, not TOML, or not a whole spec
        raise PlexusError(f"{path}: {error}") from None
    return spec


def result_of(path: Path) -> Result | None:
    """The outcome of the run in this directory; None where it did not come to one."""
    path = path / RESULT
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_bytes(path), type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlexusError(f"{path}: {error}") from None


def spec_digest_of(path: Path) -> str:
    return str(versions_of(path)["spec_digest"])


def started_s(path: Path) -> float:
    """When the live run in this directory was started, in seconds of Unix time."""
    return float(versions_of(path).get("started_s", 0.0))


def versions_of(path: Path) -> dict[str, Any]:
    """What made the results of the run in this directory: `versions()` and the digest of its spec."""
    try:
        if not (path / VERSIONS).exists():
            raise PlexusError(f"{path}: is not a run directory")
        found = msgspec.json.decode(read_bytes(path / VERSIONS), type=dict[str, Any])
        msgspec.convert(found, _Versions)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PlexusError(f"{path / VERSIONS}: does not say which spec was run") from None
    return found


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

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, number: int) -> dict[str, Any]:
        """One row as plain values; -1 is the last."""
        return {name: column[number].item() for name, column in self._columns.items()}

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`."""
        with needing("to_pandas()"):
            import pandas
        return pandas.DataFrame(self._columns)

    def to_polars(self) -> Any:
        """The same as a `polars.DataFrame`."""
        with needing("to_polars()"):
            import polars
        return polars.DataFrame(self._columns)

    def __repr__(self) -> str:
        return f"<{self.rows} rows of {', '.join(self._columns) or 'nothing'}>"

    def _repr_html_(self) -> str:
        """For notebooks: the first rows and the last."""
        half = ROWS_SHOWN // 2
        everything = self.rows <= ROWS_SHOWN
        shown = range(self.rows) if everything else [*range(half), *range(-half, 0)]
        lines = [_html("td", map(_cell, self.row(row).values())) for row in shown]
        if not everything:
            lines.insert(half, _html("td", ["…"] * len(self._columns)))
        lines.insert(0, _html("th", self._columns))
        return f"<table>{''.join(lines)}</table><p>{self.rows} rows</p>"


def _html(tag: str, cells: Any) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
