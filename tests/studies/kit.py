"""Studies that take seconds: the project's own cut down, and a small one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from plexus.spec import toml
from plexus.studies.study import REALITY, STUDIES

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


def cut_down_reality(folder: Path) -> Path:
    """The same of the studies that ask what reality does: every part that has a size tiny."""
    folder.mkdir()
    for name in REALITY:
        tables = _read(f"study-{name}")
        for part in tables["parts"].values():
            tiny = {"seeds": [1], "nodes": 12, "hours": 0.5, "protocol": {"sample_size": 5}}
            tiny["evaluation"] = {"every_rounds": 3}
            own = part.get("sizes", {}).get("tiny", {})
            if "faults" in own:
                tiny["faults"] = _sooner(own["faults"])
            for arm in part.get("arms", {}).values():
                if arm.get("faults"):
                    arm["faults"] = _sooner(arm["faults"])
            part["sizes"] = {"tiny": tiny}
        _write(folder, f"study-{name}", tables)
    for name in ("digits", "traffic", "cuts"):
        tables = _read(name)
        _write(folder, name, {**tables, "sizes": {"tiny": {"nodes": 12}}})
    return folder


def _sooner(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**fault, "from_h": 0.1, "to_h": 0.3} for fault in faults]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((EXPERIMENTS / f"{name}.toml").read_text())


def _write(folder: Path, name: str, tables: dict[str, Any]) -> None:
    (folder / f"{name}.toml").write_text(toml.dumps(tables))
