"""What stands behind the figures: settings, seeds, digests, versions, and how to repeat it all."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path

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
    """What is compared here, in one line."""
    tasks = dict.fromkeys(naming.task(run.spec["task"]["name"]) for run in runs)
    names = sorted({run.spec["protocol"]["name"] for run in runs}, key=naming.rank)
    nodes = sorted({int(run.spec["nodes"]) for run in runs})
    seeds = sorted({int(run.spec["seed"]) for run in runs})
    facts = [
        ", ".join(map(naming.protocol, names)),
        ", ".join(tasks),
        f"{' to '.join(map(quantities.whole, dict.fromkeys((nodes[0], nodes[-1]))))} nodes",
        f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}",
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
        text += (
            f"\n\n{len(unfinished)} of the {len(runs)} runs did not come to the end: each is shown as"
            " an arm of its own, named unfinished, and sets no target and counts in no mean."
        )
    return Section("provenance", "How this was made", text, tables=[_runs_table(arms), _settings_table(arms)])


def ending(arms: Sequence[Arm], folder: Path, command: str | None) -> str:
    """How to repeat it, and with which versions, as HTML; the specs go to files in `folder`."""
    runs = [run for arm in arms for run in arm.runs]
    return _repeat(arms, folder, command) + _versions(runs)


def _runs_table(arms: Sequence[Arm]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        for run in arm.runs:
            state = "complete" if is_complete(run) else f"unfinished at {reached_h(run):.1f} h"
            state += ", live" if run.is_live else ", simulated"
            found = run.result
            rows.append(
                (
                    arm.label,
                    str(run.spec["seed"]),
                    state,
                    found.rounds if found else None,
                    found.digest if found else None,
                    (found.weights_hash or None) if found else None,
                    str(run.versions.get("spec_digest", "–")),
                    str(run.versions.get("started", "–")),
                )
            )
    columns = ("Arm", "Seed", "State", "Rounds", "Digest", "Weights", "Spec", "Started")
    return Table("runs", "Runs", columns, tuple(rows), folded=len(rows) > LONGEST_TABLE)


def _settings_table(arms: Sequence[Arm]) -> Table:
    """Every key of every spec, once if all arms have the same value."""
    flat = [naming.flatten(arm.spec) for arm in arms]
    keys = dict.fromkeys(key for each in flat for key in each)
    rows: list[tuple[Cell, ...]] = []
    for key in keys:
        values: dict[str, list[str]] = {}
        for arm, each in zip(arms, flat, strict=True):
            if key in each:
                values.setdefault(naming.value_words(each[key]), []).append(arm.label)
        if len(values) == 1 and len(next(iter(values.values()))) == len(arms):
            rows.append((key, next(iter(values)), "all"))
        else:
            rows += [(key, value, "; ".join(labels)) for value, labels in values.items()]
    columns = ("Key", "Value", "Arms")
    return Table("settings", "Settings, every key", columns, tuple(rows), folded=True)


def _repeat(arms: Sequence[Arm], folder: Path, command: str | None) -> str:
    """Commands, and the specs that they run."""
    specs = folder / "specs"
    with named(specs):
        specs.mkdir(parents=True, exist_ok=True)
    lines, blocks = [], []
    for arm, name in zip(arms, _names(arms), strict=True):
        spec = {"name": name, "seed": arm.seeds[0], **arm.spec}
        write_text(specs / f"{name}.toml", toml.dumps(spec))
        path = shlex.quote(f"{folder.name}/specs/{name}.toml")
        lines += _commands(path, name, arm)
        blocks.append(
            f"<details><summary>{escape(name)}.toml <small>({escape(arm.label)})</small></summary>"
            f"<pre><code>{escape(toml.dumps(spec))}</code></pre></details>"
        )
    lines.append("plexus report repeated -o repeated.html")
    first = f"<p>This page was made by</p>{_shell([command])}" if command else ""
    return (
        f'<div id="repeat"><h3>Repeat it</h3>{first}'
        f"<p>Each run alone, in the folder of this page:{_relative_files(arms)}</p>"
        f"{_shell(lines)}{''.join(blocks)}</div>"
    )


def _shell(lines: Sequence[str]) -> str:
    """Commands, each a block: where one is too long for its line, it is seen where the next begins."""
    return f'<pre class="shell">{"".join(f"<code>{escape(line)}{chr(10)}</code>" for line in lines)}</pre>'


def _relative_files(arms: Sequence[Arm]) -> str:
    """A warning where a spec names files that are not found from where it is now."""
    found: dict[str, str] = {}
    for run in (run for arm in arms for run in arm.runs):
        start = run.versions.get("spec_dir")
        for value in naming.flatten(run.spec).values() if start else ():
            may_be_relative = isinstance(value, str) and not Path(value).is_absolute()
            if may_be_relative and Path(str(start), value).is_file():
                found[value] = str(start)
    if not found:
        return ""
    names = ", ".join(f"<code>{escape(name)}</code> in {escape(d)}" for name, d in found.items())
    return f" (first put these files beside the specs, under the same names: {names})"


def _commands(path: str, name: str, arm: Arm) -> list[str]:
    seeds = arm.seeds
    if arm.runs[0].is_live:
        rounds = arm.runs[0].result.rounds if arm.runs[0].result else 1
        return [f"plexus fleet run {path} --rounds {rounds} --out repeated/{name}"]
    if len(seeds) == 1:
        return [f"plexus run {path} --seed {seeds[0]} --out repeated/{name}-{seeds[0]}"]
    each = f'plexus run {path} --seed "$seed" --out "repeated/{name}-$seed"'
    return [f"for seed in {' '.join(map(str, seeds))}; do {each}; done"]


def _names(arms: Sequence[Arm]) -> list[str]:
    """A file name for each arm, all different."""
    names: list[str] = []
    for arm in arms:
        short = arm.label.lower()[:LONGEST_NAME]
        name = re.sub(r"[^a-z0-9.]+", "-", short).strip("-.") or "arm"
        while name in names:
            name += "-again"
        names.append(name)
    return names


def _versions(runs: Sequence[Run]) -> str:
    made: dict[str, list[Run]] = {}
    for run in runs:
        keep = {k: v for k, v in run.versions.items() if k in ("plexus", "python", "platform")}
        facts = {**keep, **run.versions.get("packages", {})}
        made.setdefault(" · ".join(f"{k} {v}" for k, v in facts.items()), []).append(run)
    items = "".join(
        f"<li>{escape(text)} <small>({len(found)} of {len(runs)} runs)</small></li>"
        for text, found in made.items()
    )
    return f'<div id="versions"><h3>Versions</h3><ul>{items}</ul></div>'
