"""A study: what one figure or table of the paper compares, or a sweep, read from a TOML file.

`docs/reproduce.md` describes the format. A study names tasks (spec files beside it), arms (what is
changed in those specs) or a grid of them, sizes (what is changed for all arms) and what to draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from plexus.checked import Source, convert, suggest
from plexus.errors import PlexusError
from plexus.spec.experiment import CHOICES
from plexus.spec.toml import FULL_SIZE, assign, overlay, read_text, read_toml

STUDIES = ("fig1", "fig3", "table2", "overhead", "sample-size", "success-fraction", "views")
"""The paper's, in the order in which it shows them."""
REALITY = ("crashes", "cuts", "late", "fairness", "attackers")
"""What the paper does not ask, in `study-crashes.toml` and so on: `cuts.toml` is a spec."""
SIZES = ("tiny", "small", FULL_SIZE)

Figures = Literal["curves", "messages", "round-durations", "views", "hourly-rounds", "used"]
OfPaper = Literal["summary", "totals", "overhead", "view-table"]
OfReality = Literal["crashes", "hours", "recovery", "survival", "late", "fairness", "losses"]

Seeds = Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)]


class Drawing(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One figure or table for each task."""

    kind: Literal[Figures, OfPaper, OfReality]
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
    of: Literal["bytes", "count"] = "bytes"


class PaperTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that the paper prints, to stand beside ours."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]
    note: str = ""


class Study(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    title: str
    paper: str = ""
    """Which figure or table of the paper it is, if any."""
    about: str = ""
    """Paragraphs that stand above the figures."""
    tasks: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Spec files beside this one, without `.toml`, or specs that come with Plexus; or paths, with it."""
    seeds: Seeds
    """Each run once for each of them."""
    arms: dict[str, dict[str, Any]] = {}
    """By name: its `label`, and keys of a spec."""
    grid: dict[str, Annotated[tuple[Any, ...], Meta(min_length=1)]] = {}
    """In place of arms: values of keys such as `protocol.sample_size`, each with each of the others."""
    spec: dict[str, Any] = {}
    """Keys of a spec, for all arms and sizes."""
    only: tuple[str, ...] = ()
    """The sizes at which it is made; at all if none are named."""
    sizes: dict[str, dict[str, Any]] = {}
    """By name: `tasks` and `seeds` that take the place of the study's, `seeds_for` single tasks, and keys
    of a spec."""
    draw: tuple[Drawing, ...] = ()
    """Without any, the page is that of `plexus report`."""
    paper_table: PaperTable | None = None

    def label(self, arm: str) -> str:
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
    title: str
    """Of the file that it is from, for the page."""
    study: Study
    size: str
    changes: dict[str, Any]

    def tables(self, task_tables: dict[str, Any], arm: str) -> dict[str, Any]:
        """The tables of a spec for one arm, from those of a task."""
        keys = {key: value for key, value in self.study.arms[arm].items() if key != "label"}
        return changed(changed(changed(task_tables, self.study.spec), self.changes), keys)


def changed(tables: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a spec with `keys` written over them. One such as `protocol.sample_size` changes that.

    Of a section that gets another name so, what belongs to the new name too stays.
    """
    both = deepcopy(overlay(tables, {key: value for key, value in keys.items() if "." not in key}))
    for path in sorted((key for key in keys if "." in key), key=lambda key: not key.endswith(".name")):
        section, value = path.partition(".")[0], keys[path]
        if isinstance(both.get(section), str):
            both[section] = {"name": both[section]}
        if path == f"{section}.name" and section in CHOICES and both.get(section, {}).get("name") != value:
            known = getattr(CHOICES[section].get(value), "__struct_fields__", ())
            both[section] = {key: kept for key, kept in both.get(section, {}).items() if key in known}
        assign(both, tuple(path.split(".")), value, path)
    return both


def load_study(name: str, size: str, folder: Path) -> list[Sized]:
    """The study called `name` (or in the file of that path) at one of its sizes: the parts it has there."""
    stem = f"study-{name}" if name in REALITY else name
    file = Path(name) if name.endswith(".toml") else folder / f"{stem}.toml"
    return sized_parts(read_text(file), file, size)


def sized_parts(text: str, file: Path, size: str) -> list[Sized]:
    """The same from the text of a file, be it written or not."""
    title, parts = parse_study(text, str(file))
    short = file.stem.removeprefix("study-")
    made = {part: study for part, study in parts.items() if not study.only or size in study.only}
    if not made:
        raise PlexusError(f"{file}: only: has nothing of size {size}")
    found = []
    for part, study in made.items():
        name, own = f"{short}-{part}" if part else short, dict(study.sizes.get(size, {}))
        usual = {"tasks": study.tasks, "seeds": study.seeds, "seeds_for": {}}
        values = {key: own.pop(key, value) for key, value in usual.items()}
        chosen = asdict(convert(values, _Chosen, ("sizes", size), Source(str(file))))
        for seeds in (chosen["seeds"], *chosen["seeds_for"].values()):
            if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
                raise PlexusError(f"{file}: seeds: {twice[0]} is there twice, and would count as two samples")
        found.append(Sized(name=name, file=file, title=title, study=study, size=size, changes=own, **chosen))
    return found


def parse_study(text: str, file: str) -> tuple[str, dict[str, Study]]:
    """Its title and its parts by name, from the text of its file; one without parts is a part without a name.

    What a part does not say it has from the keys above all parts. Errors name `file` and the key at fault.
    """
    tables = read_toml(text, file)
    if (parts := tables.pop("parts", None)) is None:
        study = _checked(tables, file)
        return study.title, {"": study}
    title = tables.pop("title", None)
    if not isinstance(title, str) or not isinstance(parts, dict):
        raise PlexusError(f"{file}: a study with parts has a title and tables [parts.NAME]")
    return title, {
        name: _checked({**tables, **part} if isinstance(part, dict) else part, f"{file}: parts.{name}")
        for name, part in parts.items()
    }


def _checked(tables: Any, file: str) -> Study:
    study = convert(tables, Study, (), Source(file))
    if study.arms and study.grid:
        raise PlexusError(f"{file}: a study has arms or a grid, not both")
    if not study.arms:
        points = product(*([(key, value) for value in values] for key, values in study.grid.items()))
        named = ((", ".join(f"{key}={value}" for key, value in point), dict(point)) for point in points)
        study = replace(study, arms={name or "as it is": point for name, point in named})
    for name in (*study.sizes, *study.only):
        _known(name, SIZES, f"{file}: sizes.{name}: is not a size")
    for name, arm in study.arms.items():
        if not isinstance(arm.get("label", ""), str):
            raise PlexusError(f"{file}: arms.{name}.label: expected a string")
        if [study.label(each) for each in study.arms].count(study.label(name)) > 1:
            raise PlexusError(f"{file}: arms.{name}.label: {study.label(name)!r} is what another is called")
    for number, drawing in enumerate(study.draw):
        for name in drawing.arms:
            _known(name, tuple(study.arms), f"{file}: draw[{number}].arms: there is no arm {name!r}")
    table = study.paper_table
    for number, row in enumerate(table.rows if table else ()):
        if table and len(row) != len(table.columns):
            wrong = f"{len(row)} cells for {len(table.columns)} columns"
            raise PlexusError(f"{file}: paper_table.rows[{number}]: {wrong}")
    return study


def _known(word: str, known: Sequence[str], complaint: str) -> None:
    if word not in known:
        raise PlexusError(f"{complaint}; known are {', '.join(known)}{suggest(word, known)}")
