"""Studies that take seconds: the project's own cut down, and a small one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from plexus.spec import toml
from plexus.studies.study import STUDIES

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

BASE = """\
name = "small"
nodes = 12
hours = 0.5
[protocol]
name = "plexus"
sample_size = 3
[task]
name = "digits"
[evaluation]
every_rounds = 5
every_hours = 0.25
[sizes.tiny]
hours = 0.25
"""
STUDY = """\
title = "One study"
paper = "Figure 9"
about = "What is compared."
tasks = ["base"]
seeds = [1, 2]
[arms.plexus]
label = "Plexus"
[arms.gossip]
label = "Gossip Learning"
protocol = { name = "gossip" }
[sizes.small]
seeds = [1]
nodes = 9
[[draw]]
kind = "curves"
title = "over time"
"""


def folder_with(path: Path, **files: str) -> Path:
    """A folder of experiments; `a_b` is a-b.toml."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / f"{name.replace('_', '-')}.toml").write_text(text)
    return path


def cut_down(folder: Path) -> Path:
    """The project's own studies with every arm and drawing, one seed, few nodes and minutes."""
    folder.mkdir()
    for name in STUDIES:
        tables = _read(name)
        tables["seeds"] = [1]
        tables["sizes"] = {"tiny": {"tasks": tables["sizes"]["tiny"]["tasks"]}} if "sizes" in tables else {}
        _write(folder, name, tables)
    for name, hours in (("digits", 0.4), ("traffic", 0.4)):
        tables = _read(name)
        tables["sizes"] = {
            "tiny": {"nodes": 16, "hours": hours, "evaluation": {"every_rounds": 3, "every_hours": 0.2}}
        }
        _write(folder, name, tables)
    return folder


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text())


def _write(folder: Path, name: str, tables: dict[str, Any]) -> None:
    (folder / f"{name}.toml").write_text(toml.dumps(tables))
