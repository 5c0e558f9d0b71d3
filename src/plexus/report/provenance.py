"""What stands behind the figures: settings, seeds, digests, versions, and how to repeat it all."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from plexus import quantities
from plexus.files import named, write_text
from plexus.report import naming
from plexus.report.arms import Arm, is_complete, reached_h
from plexus.report.document import Cell, Section, Table
from plexus.runs.run import Run
from plexus.spec import toml

LONGEST_TABLE = 12
"""Rows; a longer list of runs is shown on demand."""
LONGEST_NAME = 80
"""Of a file, in characters: a label may be longer than a file system allows."""


def subtitle(runs: Sequence[Run]) -> str:
    tasks = dict.fromkeys(naming.task(run.spec["task"]["name"]) for run in runs)
    names = sorted({run.spec["protocol"]["name"] for run in runs}, key=naming.rank)
    nodes = sorted({int(run.spec["nodes"]) for run in runs})
    seeds = sorted({int(run.spec["seed"]) for run in runs})
    facts = [
        ", ".join(map(naming.protocol, names)),
        ", ".join(tasks),
        " to ".join(f"{count:,}" for count in dict.fromkeys((nodes[0], nodes[-1]))) + " nodes",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {quantities.ranges(seeds)}",
        f"{len(runs)} runs" if len(runs) > 1 else "1 run",
    ]
    return " · ".join(facts)


def section(arms: Sequence[Arm]) -> Section:
    """How this was made, as far as tables can say it."""
    runs = [run for arm in arms for run in arm.runs]
    unfinished = [run for run in runs if not is_complete(run)]
    text = "Everything above comes from the runs listed here. A run with the same spec, seed and versions"
    text += " has the same digest and the same weights, on any machine of one kind."
    if any(run.is_live for run in runs):
        text += " Of live peers no two runs are alike; the digest is that of their session."
    if unfinished:
        text += f"\n\n{len(unfinished)} of the {len(runs)} runs did not come to the end: each is shown as"
        text += " an arm of its own, named unfinished, and sets no target and counts in no mean."
    return Section("provenance", "How this was made", text, tables=[_runs_table(arms), _settings_table(arms)])


def _runs_table(arms: Sequence[Arm]) -> Table:
    columns = ("Arm", "Seed", "State", "Rounds", "Digest", "Weights", "Spec", "Started")
    rows: list[tuple[Cell, ...]] = []
    for label, run in ((arm.label, run) for arm in arms for run in arm.runs):
        found = run.result
        state = "complete" if is_complete(run) else f"unfinished at {reached_h(run):.1f} h"
        about = (label, str(run.spec["seed"]), f"{state}, {'live' if run.is_live else 'simulated'}")
        came_to = (found.rounds, found.digest, found.weights_hash or None) if found else (None,) * 3
        made = (str(run.versions.get(key, "–")) for key in ("spec_digest", "started"))
        rows.append((*about, *came_to, *made))
    return Table("runs", "Runs", columns, tuple(rows), folded=len(rows) > LONGEST_TABLE)


def _settings_table(arms: Sequence[Arm]) -> Table:
    """Every key of every spec, once if all arms have the same value."""
    flat = [naming.flatten(arm.spec) for arm in arms]
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys(key for each in flat for key in each):
        values: dict[str, list[str]] = {}
        for arm, each in zip(arms, flat, strict=True):
            if key in each:
                values.setdefault(naming.value_words(each[key]), []).append(arm.label)
        for value, labels in values.items():
            rows.append((key, value, "all" if len(labels) == len(arms) else "; ".join(labels)))
    return Table("settings", "Settings, every key", ("Key", "Value", "Arms"), tuple(rows), folded=True)


class Repeat(NamedTuple):
    """How to run an arm again."""

    name: str
    """Of its spec's file, without `.toml`."""
    label: str
    toml: str
    command: str


def repeats(arms: Sequence[Arm], folder: Path) -> list[Repeat]:
    """For each arm a command and the spec that it runs, which goes to a file in `folder`."""
    specs = folder / "specs"
    with named(specs):
        specs.mkdir(parents=True, exist_ok=True)
    found = []
    for arm, name in zip(arms, _names(arms), strict=True):
        text = toml.dumps({"name": name, "seed": arm.seeds[0], **arm.spec})
        write_text(specs / f"{name}.toml", text)
        path = shlex.quote(f"{folder.name}/specs/{name}.toml")
        if arm.runs[0].is_live:
            rounds = arm.runs[0].result.rounds if arm.runs[0].result else 1
            command = f"plexus fleet run {path} --rounds {rounds} --out repeated/{name}"
        elif len(arm.seeds) == 1:
            command = f"plexus run {path} --seed {arm.seeds[0]} --out repeated/{name}-{arm.seeds[0]}"
        else:
            each = f'plexus run {path} --seed "$seed" --out "repeated/{name}-$seed"'
            command = f"for seed in {' '.join(map(str, arm.seeds))}; do {each}; done"
        found.append(Repeat(name, arm.label, text, command))
    return found


def _names(arms: Sequence[Arm]) -> list[str]:
    """A file name for each arm, all different."""
    names: list[str] = []
    for arm in arms:
        name = re.sub(r"[^a-z0-9.]+", "-", arm.label.lower()[:LONGEST_NAME]).strip("-.") or "arm"
        while name in names:
            name += "-again"
        names.append(name)
    return names


def needed_files(arms: Sequence[Arm]) -> dict[str, str]:
    """Files that a spec names and that are not found from where it is now, and the folder of each."""
    found: dict[str, str] = {}
    for run in (run for arm in arms for run in arm.runs):
        start = run.versions.get("spec_dir")
        for value in naming.flatten(run.spec).values() if start else ():
            may_be_relative = isinstance(value, str) and not Path(value).is_absolute()
            if may_be_relative and Path(str(start), value).is_file():
                found[value] = str(start)
    return found


def versions(arms: Sequence[Arm]) -> Counter[str]:
    """What the runs were made with, and how many of them."""
    made: Counter[str] = Counter()
    for run in (run for arm in arms for run in arm.runs):
        keep = {k: v for k, v in run.versions.items() if k in ("plexus", "python", "platform")}
        facts = {**keep, **run.versions.get("packages", {})}
        made[" · ".join(f"{k} {v}" for k, v in facts.items())] += 1
    return made
