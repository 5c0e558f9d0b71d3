"""A study: what one figure or table of the paper compares, read from a TOML file.

`docs/reproduce.md` describes the format. A study names tasks (spec files beside it), arms (what is
changed in those specs), sizes (what is changed for all arms) and what to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from plexus.checked import Source, convert, suggest
from plexus.errors import PlexusError
from plexus.spec.experiment import FULL_SIZE, overlay, read_text, read_toml

STUDIES = ("fig1", "fig3", "table2", "overhead", "sample-size", "success-fraction", "views")
"""The paper's, in the order in which it shows them."""
SIZES = ("tiny", "small", FULL_SIZE)

Kind = Literal[
    "curves", "summary", "totals", "messages", "overhead", "round-durations", "views", "view-table"
]

Seeds = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]


class Drawing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One figure or table for each task."""

    kind: Kind
    """What is shown: see the page."""
    title: str
    """Stands above it, after the name of the task."""
    caption: str = ""
    """Stands below it."""
    paper: str | None = None
    """What the paper reports of the same thing."""
    arms: tuple[str, ...] = ()
    """Which arms; all of them if none are named."""
    x: Literal["simulated_h", "sent_gb", "training_h"] = "simulated_h"
    """The horizontal axis of curves."""
    of: Literal["bytes", "count"] = "bytes"
    """What is counted of messages."""


class PaperTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that the paper prints, to stand beside ours."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    note: str = ""


class Study(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file."""

    title: str
    paper: str = ""
    """Which figure or table of the paper it is, if any."""
    about: str = ""
    """Paragraphs that stand above the figures."""
    tasks: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Spec files beside this one, without `.toml`."""
    seeds: Seeds
    """Each run once for each of them."""
    arms: dict[str, dict[str, Any]]
    """By name: its `label`, and keys of a spec."""
    sizes: dict[str, dict[str, Any]] = {}
    """By name: `tasks` and `seeds` that take the place of the study's, `seeds_for` single tasks, and keys
    of a spec."""
    draw: Annotated[tuple[Drawing, ...], Meta(min_length=1)]
    paper_table: PaperTable | None = None

    def label(self, arm: str) -> str:
        """What a reader calls the arm."""
        return str(self.arms[arm].get("label", arm))


class _Chosen(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tasks: Annotated[tuple[str, ...], Meta(min_length=1)]
    seeds: Seeds
    seeds_for: dict[str, Seeds]
    """By task, where it has seeds of its own."""


class Sized(_Chosen, frozen=True, kw_only=True):
    """A study at one of its sizes."""

    name: str
    file: Path
    study: Study
    size: str
    changes: dict[str, Any]
    """Keys of a spec, for all arms."""

    def tables(self, task_tables: dict[str, Any], arm: str) -> dict[str, Any]:
        """The tables of a spec for one arm, from those of a task."""
        keys = {key: value for key, value in self.study.arms[arm].items() if key != "label"}
        return overlay(overlay(task_tables, self.changes), keys)


def load_study(name: str, size: str, folder: Path) -> Sized:
    """The study called `name` (or in the file of that path), at one of its sizes."""
    file = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    study = parse_study(read_text(file), str(file))
    own = dict(study.sizes.get(size, {}))
    usual = {"tasks": study.tasks, "seeds": study.seeds, "seeds_for": {}}
    values = {key: own.pop(key, value) for key, value in usual.items()}
    found = convert(values, _Chosen, ("sizes", size), Source(str(file)))
    return Sized(name=file.stem, file=file, study=study, size=size, changes=own, **asdict(found))


def parse_study(text: str, file: str) -> Study:
    """A study from the text of its file; errors name `file` and the key at fault."""
    study = convert(read_toml(text, file), Study, (), Source(file))
    for name in study.sizes:
        _known(name, SIZES, f"{file}: sizes.{name}: is not a size")
    for name, arm in study.arms.items():
        if not isinstance(arm.get("label", ""), str):
            raise PlexusError(f"{file}: arms.{name}.label: expected a string")
    for number, drawing in enumerate(study.draw):
        for name in drawing.arms:
            _known(name, tuple(study.arms), f"{file}: draw[{number}].arms: there is no arm {name!r}")
    table = study.paper_table
    for number, row in enumerate(table.rows if table else ()):
        if table and len(row) != len(table.columns):
            raise PlexusError(
                f"{file}: paper_table.rows[{number}]: {len(row)} cells for {len(table.columns)} columns"
            )
    return study


def _known(word: str, known: Sequence[str], complaint: str) -> None:
    if word not in known:
        raise PlexusError(f"{complaint}; known are {', '.join(known)}{suggest(word, known)}")
