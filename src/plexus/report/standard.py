"""The report of any runs: for each setting what it cost to learn, how it went, and what was sent.

Of a live session beside its rehearsal, also whether both took the same course, round by round.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from plexus import quantities
from plexus.report import naming, plots
from plexus.report.arms import Arm, common_metric, group
from plexus.report.comparison import Comparison, compare, findings, table_of
from plexus.report.document import Cell, Picture, Quantity, Section, Table, number, over_seeds
from plexus.report.measuring import evenly
from plexus.runs.run import Run

_OF_DATA = frozenset({
    "name", "data", "partition", "alpha", "shards_per_node", "reuse", "test_share", "test_examples",
    "model_bytes", "augment",
})  # fmt: skip
"""Keys of a task that say what is learned, not how: with others, another task."""
MOST_DRAWN, MOST_REFUSED = 9, 5
"""Arms in one figure; refusals of one run in the table of suspects."""
WITHIN = 0.02
"""By so much measurements of the same round may differ."""
MOST_ROUNDS = 12
WHY = " Where it differs, other trainings counted: by sample_size, success_fraction or a timeout."
_CURVES: tuple[tuple[plots.Axis, str, str], ...] = (
    ("simulated_h", "time", "time"),
    ("sent_gb", "communication", "what all nodes have sent, on a log scale"),
    ("training_h", "resources", "training time, on a log scale"),
)


def by_setting(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Arms that can be compared: the same task, hours, nodes, traces and network. Ours beside baselines comes
    first.

    Each is named by what sets it apart from those beside it, not from those of other settings.
    """
    found: dict[str, list[Run]] = {}
    for arm in arms:
        found.setdefault(repr(_circumstances(arm)), []).extend(arm.runs)
    has_live = any(run.is_live for arm in arms for run in arm.runs)
    groups = [group(runs, has_live) for runs in found.values()]
    return sorted(groups, key=lambda each: len({arm.is_ours for arm in each}) == 1)


def standard_sections(
    arms: Sequence[Arm], target: float | None = None, about: str = "", name: str = ""
) -> list[Section]:
    """One section for each setting. `about` stands above the first; `name` sets apart those of one page."""
    groups = by_setting(arms)
    suffix = f"-{slug(name)}" if name else ""
    found = [
        _section(title, setting, target, f"{suffix}-{at}" if len(groups) > 1 else suffix)
        for at, (title, setting) in enumerate(zip(titles(groups), groups, strict=True), start=1)
    ]
    found[0] = replace(found[0], text="\n\n".join(filter(None, [about.strip(), found[0].text])))
    return found


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def titles(groups: Sequence[Sequence[Arm]]) -> list[str]:
    """For each setting the circumstances that its arms share.

    Task, nodes and churn are always said; where these are the same, also the keys that differ.
    """
    short = [_short_title(arms[0]) for arms in groups]
    flat = [naming.flatten(_circumstances(arms[0])) for arms in groups]
    found = []
    for title, each in zip(short, flat, strict=True):
        alike = [other for name, other in zip(short, flat, strict=True) if name == title]
        found.append(", ".join([title, *naming.assignments(each, naming.varying(alike))]))
    return found


def _short_title(arm: Arm) -> str:
    spec = arm.spec
    churn = naming.availability(spec.get("traces", {}).get("availability", "fedscale"))
    task = naming.task(spec["task"]["name"])
    return f"{task[0].upper()}{task[1:]}, {spec['nodes']:,} nodes, {churn}"


def _circumstances(arm: Arm) -> dict[str, Any]:
    spec = arm.spec
    # Of one's own task Plexus knows the name; what its keys mean, only its author does.
    known = {"name"} if ":" in spec["task"]["name"] else _OF_DATA
    task = {key: value for key, value in spec["task"].items() if key in known}
    return {"task": task, **{key: spec.get(key) for key in ("hours", "nodes", "traces", "network")}}


def _section(title: str, arms: Sequence[Arm], target: float | None, suffix: str) -> Section:
    mean = compare(arms, target)
    tables = [table_of(mean, f"summary{suffix}", "Cost of reaching the target")]
    if any(arm.has_own_models for arm in arms):
        best = compare(arms, target, judge="best")
        tables.append(table_of(best, f"summary-best-node{suffix}", "The same, judged by the best node"))
    more = (_cuts_table(arms, f"cuts{suffix}"), _suspects_table(arms, f"suspects{suffix}"))
    tables += [*(table for table in more if table.rows), *agreements(arms, suffix)]
    also = ""
    if len(arms) > MOST_DRAWN:  # figures have colours for the best; all are in the table
        also, sign = f" The {MOST_DRAWN} best.", 1 if mean.higher_is_better else -1
        known = [outcome for outcome in mean.arms if outcome.best]
        shown = sorted(known, key=lambda outcome: -sign * fmean(outcome.best))[:MOST_DRAWN]
        arms = [arm for arm in arms if arm.label in {outcome.label for outcome in shown}]
    drawn = _pictures(arms, mean)
    pictures = [replace(each, id=f"{each.id}{suffix}", caption=each.caption + also) for each in drawn]
    return Section(f"setting-{slug(title)}{suffix}", title, findings(mean), pictures, tables)


def _cuts_table(arms: Sequence[Arm], id: str) -> Table:
    """For each cut, of what both sides aggregated while it lasted, how much the final model is made from."""
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        of_runs = [run.result.cuts for run in arm.runs if run.result and run.result.cuts]
        for cuts in zip(*of_runs, strict=True):
            counts = ("cut_nodes", "cut_aggregates", "cut_survived", "others_aggregates", "others_survived")
            means = [over_seeds([getattr(cut, name) for cut in cuts], number) for name in counts]
            rows.append((arm.label, f"{cuts[0].from_h:g}–{cuts[0].to_h:g}", *means))
    sides = ("Cut off", "Their rounds", "Survived", "Others' rounds", "Others' survived")
    note = "Rounds aggregated while the cut lasted, on either side, and those of them behind the final model."
    return Table(id, "Whose work survived", ("Method", "Cut [h]", *sides), tuple(rows), note)


def _suspects_table(arms: Sequence[Arm], id: str) -> Table:
    """Who was refused what, by seed; of one reason the whole is in the logs."""
    rows: list[tuple[Cell, ...]] = []
    for label, run in ((arm.label, run) for arm in arms for run in arm.runs):
        for each in run.result.suspects[:MOST_REFUSED] if run.result else ():
            of = (label, str(run.spec["seed"]), each.node, each.reason)
            rows.append((*of, f"{each.times:,}", f"{each.peers:,}"))
    note = f"The {MOST_REFUSED} most frequent of each run."
    note += " Honest nodes are refused a little too: many say more."
    columns = ("Method", "Seed", "Node", "Why it was refused", "Times", "By nodes")
    return Table(id, "Suspects", columns, tuple(rows), note)


def _pictures(arms: Sequence[Arm], comparison: Comparison) -> Iterator[Picture]:
    """Of all there are, those for which something was recorded."""
    if evaluated := [arm for arm in arms if any(run.tables["evaluations"] for run in arm.runs)]:
        yield from _curves(evaluated, comparison)
    if with_rounds := [arm for arm in arms if len(plots.durations_s(arm))]:
        caption = "Time between the completions of two rounds, of all seeds: the share that is shorter."
        yield Picture("round-durations", "Duration of rounds", caption, plots.round_durations(with_rounds))
    if with_used := [arm for arm in arms if len(plots.used_shares(arm)[1])]:
        caption = (
            "Of the trainings that devices finished, the share behind the final model: a point for each tenth"
            " of the devices of all seeds, by how long a training takes on them."
        )
        yield Picture("used", "Whose work is used", caption, plots.used_by_speed(with_used))
    if sending := [arm for arm in arms if any(run.result and run.result.sent_bytes for run in arm.runs)]:
        caption = "What nodes send, by type of message; at the right all of it, as the mean over seeds."
        by_bytes, by_count = plots.bars_of_messages(sending), plots.bars_of_messages(sending, "count")
        yield Picture("messages-bytes", "Bytes by type of message", caption, by_bytes)
        yield Picture("messages-count", "Messages by type", caption, by_count)
    views = [arm for arm in arms if any(run.tables.get("views") for run in arm.runs)]
    shown = views or [arm for arm in arms[:1] if arm.has_churn and arm.runs[0].tables["online"]]
    if shown:
        caption = f"With seed {shown[0].seeds[0]}."
        if views:
            caption += " Views: how many nodes those online believe to be online, from least to most."
        yield Picture("online", "Nodes online", caption, plots.online_and_views(shown))


def _curves(arms: Sequence[Arm], comparison: Comparison) -> Iterator[Picture]:
    name = quantities.metric_name(comparison.metric)
    goal = quantities.metric(comparison.metric, comparison.target)
    reference = None if comparison.target is None else (comparison.target, f"target {goal}")
    more = ""
    if any(arm.has_own_models for arm in arms):
        more += " Where every node has its own model, the mean over nodes."
    if any(len(arm.runs) > 1 for arm in arms):
        more += " Lines are means over seeds, bands reach from the lowest seed to the highest."
    for x, id, over in _CURVES:
        if not any(plots.curve(arm, x, comparison.metric) for arm in arms):
            continue
        figure = plots.curves(arms, x, comparison.metric, log=x != "simulated_h", reference=reference)
        yield Picture(id, f"{name[0].upper()}{name[1:]} and {id}", f"Test {name} over {over}.{more}", figure)


def agreements(arms: Sequence[Arm], suffix: str = "") -> Iterator[Table]:
    """A table for each session that is here both live and simulated, from the same file."""
    for live in arms:
        for simulated in arms:
            is_pair = live.runs[0].is_live and not simulated.runs[0].is_live
            if is_pair and live.spec == simulated.spec:
                yield _agreement(live, simulated, f"rehearsal{suffix}")


def _agreement(live: Arm, simulated: Arm, id: str) -> Table:
    metric, _ = common_metric([live, simulated])
    write = partial(quantities.metric, metric)
    found, rehearsed = _by_round(live, metric), _by_round(simulated, metric)
    common = sorted(found.keys() & rehearsed.keys())
    apart = {k: abs(fmean(found[k]) - fmean(rehearsed[k])) for k in common}
    rows: list[tuple[Cell, ...]] = []
    for k in np.array(common)[evenly(len(common), MOST_ROUNDS)].tolist():
        both = over_seeds(found[k], write), over_seeds(rehearsed[k], write)
        rows.append((str(k), *both, Quantity(quantities.difference(metric, apart[k]), apart[k])))
    name = quantities.metric_name(metric)
    columns = ("Round", f"Live {name}", f"Simulated {name}", "Difference")
    note = f"{_rounds(live, simulated)} {_difference(apart, metric)}"
    return Table(id, "The session and its rehearsal", columns, tuple(rows), note)


def _by_round(arm: Arm, metric: str) -> dict[int, list[float]]:
    """What was measured of the model of each round, by all runs."""
    found: dict[int, list[float]] = {}
    for run in arm.runs:
        if evaluations := run.tables["evaluations"]:
            for k, value in zip(evaluations["round"], evaluations[metric], strict=True):
                found.setdefault(int(k), []).append(float(value))
    return found


def _rounds(live: Arm, simulated: Arm) -> str:
    came_to = [fmean(run.result.rounds for run in arm.runs if run.result) for arm in (live, simulated)]
    durations = map(plots.durations_s, (live, simulated))
    took = [number(float(np.median(each))) if len(each) else "?" for each in durations]
    far = f"Live it came to round {came_to[0]:g}, simulated to round {came_to[1]:g}"
    if came_to[0] == came_to[1]:
        far = f"Both came to round {came_to[0]:g}"
    return f"{far}; one round in two took less than {took[0]} s live and {took[1]} s simulated."


def _difference(apart: dict[int, float], metric: str) -> str:
    if not apart:
        return "No round was measured in both."
    name, worst, last = quantities.metric_name(metric), max(apart, key=lambda k: apart[k]), max(apart)
    most, at_last = (quantities.difference(metric, apart[k]) for k in (worst, last))
    text = f"Of {len(apart)} rounds measured in both, {name} differs by {most} at most (round {worst}) and by"
    text += f" {at_last} in the last"
    if quantities.is_percentage(metric):
        alike = sum(each <= WITHIN for each in apart.values())
        text += f"; in {alike} of {len(apart)} it is the same to within {100 * WITHIN:g} points"
    return f"{text}.{WHY if apart[worst] > WITHIN else ''}"
