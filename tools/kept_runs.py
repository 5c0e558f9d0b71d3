"""The runs that are kept in results/, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from plexus.report.arms import Arm, group, load_runs
from plexus.report.standard import by_setting, titles
from plexus.runs.run import Run


class Setting(NamedTuple):
    """Arms that are compared with each other."""

    title: str
    arms: Sequence[Arm]

    @property
    def runs(self) -> int:
        return sum(len(arm.runs) for arm in self.arms)


def kept(folder: Path) -> list[Run]:
    """Nothing where there is nothing yet."""
    return load_runs([folder / "runs"]) if any(folder.glob("runs/*/result.json")) else []


def settings(folder: Path) -> list[Setting]:
    """What was run, the setting with most runs first."""
    groups = by_setting(group(kept(folder)))
    found = [
        Setting(f"{title}, {arms[0].spec['hours']:g} h", arms)
        for title, arms in zip(titles(groups), groups, strict=True)
    ]
    return sorted(found, key=lambda setting: -setting.runs)


def arms_by(folder: Path, label: Callable[[Run], str]) -> list[Arm]:
    """The runs of a folder under labels of one's own, in the order of these."""
    found: dict[str, list[Run]] = {}
    for run in kept(folder):
        found.setdefault(label(run), []).append(run)
    return [
        Arm(name, tuple(sorted(runs, key=lambda run: run.spec["seed"])))
        for name, runs in sorted(found.items())
    ]


def is_papers(arm: Arm) -> bool:
    """Plexus with the paper's values."""
    return arm.is_ours and not arm.spec["protocol"].get("late_rounds")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
