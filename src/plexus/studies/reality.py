"""What reality does to a session, in tables and in sentences: crashes, cuts, late models, slow devices.

Every table comes with what is seen in it, said in words that follow from its numbers. Where there are several
seeds, ± is the half width of the 95 % interval of the mean. Ratios are between runs of one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np

from plexus import quantities
from plexus.report import plots
from plexus.report.arms import Arm, common_metric
from plexus.report.document import Cell, Quantity, heading, over_seeds
from plexus.report.measuring import cost_of, values_of
from plexus.runs.result import Result
from plexus.runs.run import Run

SURVIVES = 0.95
"""The share of a side's rounds that must be behind the final model for its work to have survived."""

Measure = Callable[[Run], float | None]
WHOLE, ONE, TWO = "{:,.0f}".format, "{:.1f}".format, "{:.2f}".format


class Told(NamedTuple):
    columns: tuple[str, ...]
    rows: Iterable[tuple[Cell, ...]]
    seen: str = ""


class Column(NamedTuple):
    """Something measured of runs, and how it is written; without that it is true or false, and counted."""

    name: str
    of: Measure
    write: Callable[[float], str] | None = WHOLE

    def values(self, arm: Arm) -> list[float]:
        """Of the seeds that have one."""
        return [value for value in map(self.of, arm.runs) if value is not None]

    def cell(self, arm: Arm) -> Cell:
        """The mean over seeds. One over the lucky ones would flatter: it is said if not all have a value."""
        values, seeds = self.values(arm), len(arm.runs)
        if self.write is None:
            return Quantity(f"{sum(values):.0f} of {seeds}", sum(values) / seeds)
        cell = over_seeds(values, self.write)
        return cell if len(values) in (0, seeds) else Quantity(f"{len(values)} of {seeds}: {cell.text}", None)

    def said(self, arm: Arm, of: Callable[[list[float]], float] = fmean) -> str:
        """The mean over seeds, or the greatest, in a sentence."""
        values = self.values(arm)
        if self.write is None:
            return f"{sum(values):.0f} of {len(arm.runs)} seeds"
        return self.write(of(values)) if values else "–"


def tabulated(arms: Sequence[Arm], columns: Sequence[Column]) -> Told:
    rows = [(arm.label, *(column.cell(arm) for column in columns)) for arm in arms]
    return Told(("Setting", *(column.name for column in columns)), rows)


def tell(arms: Sequence[Arm], columns: Sequence[Column], say: Callable[[Arm], str]) -> Told:
    seen = " ".join(f"{heading(arm.label)}: {say(arm)}." for arm in arms)
    return tabulated(arms, columns)._replace(seen=seen)


def result(run: Run) -> Result:
    assert run.result is not None, "only finished runs are drawn"
    return run.result


def part_of(struct: str, part: str) -> Measure:
    """`ratio` of `membership`, say, of the results that have one."""
    return lambda run: getattr(getattr(result(run), struct), part, None)


def against(first: Arm, of: Measure) -> Measure:
    """The ratio to what the first arm has with the same seed."""
    usual = {run.spec["seed"]: of(run) for run in first.runs}

    def ratio(run: Run) -> float | None:
        own, base = of(run), usual[run.spec["seed"]]
        return own / base if own is not None and base else None

    return ratio


def rounds(run: Run) -> float:
    """How many were completed, whatever their numbers."""
    return float(len(plots.completions_s(run)))


def waits_s(run: Run) -> tuple[float | None, float]:
    """From the first fault on: the time until the next round, if one came, and the longest without any."""
    from_s, done = 3600 * run.spec["faults"][0]["from_h"], plots.completions_s(run)
    later = done[done > from_s]
    gaps = np.diff([from_s, *later, result(run).simulated_s])
    return (float(gaps[0]) if len(later) else None), float(gaps.max())


def duplicates(run: Run) -> float | None:
    lineage, every = result(run).lineage, rounds(run)
    return lineage.duplicate_aggregators / every if lineage and every else None


ROUNDS = Column("Rounds", rounds)
SENT = Column("Sent [GB]", lambda run: result(run).sent_bytes / 1e9, "{:.3g}".format)


def crashes(arms: Sequence[Arm]) -> Told:
    """Rounds, and whether nodes know who is there."""
    first = arms[0].label
    share = Column(f"Of {first}", against(arms[0], rounds), quantities.share)
    views = Column("Believed / online", part_of("membership", "ratio"), TWO)
    aggregators = Column("Of aggregators", part_of("membership", "aggregators_ratio"), TWO)
    two = Column("With two aggregators", duplicates, quantities.share)

    def say(arm: Arm) -> str:
        part = "" if arm is arms[0] else f" ({share.said(arm)} of those with {first})"
        held = f"{views.said(arm)} nodes are believed to be online for each that is"
        return f"{ROUNDS.said(arm)} rounds{part}, {two.said(arm)} of them with two aggregators; {held}"

    return tell(arms, (ROUNDS, share, two, views, aggregators, SENT), say)


def hours(arms: Sequence[Arm]) -> Told:

    def in_hour(at: int) -> Column:
        return Column(f"Hour {at + 1}", lambda run: float(plots.rounds_by_hour(run)[at]))

    last = min(len(plots.rounds_by_hour(run)) for arm in arms for run in arm.runs)
    columns = [in_hour(at) for at in range(last)]
    said = "the hours have {} rounds".format
    return tell(arms, columns, lambda arm: said(", ".join(each.said(arm) for each in columns)))


def recovery(arms: Sequence[Arm]) -> Told:
    """How long it takes until there is a round again after the first fault began."""
    following = Column("Next round after [s]", lambda run: waits_s(run)[0], ONE)
    longest = Column("Longest wait after [s]", lambda run: waits_s(run)[1], ONE)
    comes = Column("A round follows in", lambda run: waits_s(run)[0] is not None, None)

    def say(arm: Arm) -> str:
        after = f"after {following.said(arm)} s on average and {following.said(arm, max)} s at most"
        wait = f"the longest time without one is {longest.said(arm, max)} s"
        return f"a round follows in {comes.said(arm)}, {after}; {wait}"

    return tell(arms, (comes, following, longest, ROUNDS), say)


# Cuts


def larger_side(run: Run) -> tuple[int, int, int]:
    """Of the first cut: the rounds of the side with more nodes, those of them behind the final model, and the
    rounds of the other side."""
    cut = result(run).cuts[0]
    theirs, others = (cut.cut_aggregates, cut.cut_survived), (cut.others_aggregates, cut.others_survived)
    if 2 * cut.cut_nodes > run.spec["nodes"]:
        theirs, others = others, theirs
    return (*others, theirs[0])


def survived(run: Run) -> float | None:
    made, behind, _ = larger_side(run)
    return behind / made if made else None


def greatest_fall(run: Run) -> float | None:
    """By how much the metric was ever worse than at its best until then, from the first cut on."""
    metric, from_s = result(run).metric, 3600 * result(run).cuts[0].from_h
    values = values_of(run, metric.name, "mean") * (1 if metric.higher_is_better else -1)
    if not len(values):
        return None
    falls = (np.maximum.accumulate(values) - values)[run.tables["evaluations"]["simulated_s"] >= from_s]
    return float(falls.max()) if len(falls) else None


def survival(arms: Sequence[Arm]) -> Told:
    """Whose work survived the first cut of the spec, and what it did to the metric."""
    name, _ = common_metric(arms)
    fall = Column("Greatest fall", greatest_fall, partial(quantities.difference, name))
    whole = Column(f"{100 * SURVIVES:g} % in", lambda run: (survived(run) or 0.0) >= SURVIVES, None)
    columns = (
        Column("Rounds of the larger side", lambda run: float(larger_side(run)[0])),
        Column("Of the smaller", lambda run: float(larger_side(run)[2])),
        Column("Survived of the larger", survived, quantities.share),
        whole,
        fall,
    )

    def say(arm: Arm) -> str:
        falls = f", and {quantities.metric_name(name)} falls by {fall.said(arm, max)} at most"
        return f"the work of the larger side survives in {whole.said(arm)}{falls if fall.values(arm) else ''}"

    return tell(arms, columns, say)


# Late models, and whose are used


def late_share(run: Run) -> float | None:
    """Of the trainings behind the final model, how many came too late for their round."""
    used = run.detail("used")
    total = used["trainings_used"].sum() if used else 0
    return float(used["late_used"].sum() / total) if total else None


def unused(run: Run) -> float:
    """Nodes of which no training is behind the final model, be it that they never came to the end of one."""
    return float((run.detail("used")["trainings_used"] == 0).sum())


LATE = Column("Late, of used", late_share, quantities.share)


def late(arms: Sequence[Arm]) -> Told:
    """What it takes each arm to come to the final accuracy of the first, seed by seed."""
    first, (name, higher) = arms[0], common_metric(arms)
    written = partial(quantities.metric, name)
    final = Column(f"Final {quantities.metric_name(name)}", part_of("metric", "final"), written)
    goals = {run.spec["seed"]: final.of(run) for run in first.runs}

    def to_goal(part: str) -> Measure:
        return lambda run: getattr(
            cost_of(run, values_of(run, name, "mean"), higher, goals[run.spec["seed"]]), part, None
        )

    time_h = Column("Time to it [h]", to_goal("tta_h"), TWO)
    reached = Column("Comes to it in", lambda run: time_h.of(run) is not None, None)
    times = Column("Time to it, ratio", against(first, time_h.of), TWO)
    devices = Column("Device hours, ratio", against(first, to_goal("rta_h")), TWO)

    def say(arm: Arm) -> str:
        goal = f"the final {quantities.metric_name(name)} of {first.label} in {reached.said(arm)}"
        takes = f", in {times.said(arm)} times the time and {devices.said(arm)} times the device hours"
        comes = f"; it comes to {goal}{takes if times.values(arm) else ''}"
        return f"it ends at {final.said(arm)}{'' if arm is first else comes}"

    return tell(arms, (final, reached, time_h, times, devices, ROUNDS, LATE), say)


def losses(arms: Sequence[Arm]) -> Told:
    """How good the models of each arm's last fifth are, and how much better those of the first arm."""
    first, (name, _) = arms[0], common_metric(arms)

    def in_the_end(run: Run) -> float:
        values = values_of(run, name, "mean")
        return float(values[-max(1, len(values) // 5) :].mean())

    usual = {run.spec["seed"]: in_the_end(run) for run in first.runs}
    end = Column(f"{quantities.metric_name(name)} in the end", in_the_end, partial(quantities.metric, name))
    lost = Column("Lost, points", lambda run: 100 * (usual[run.spec["seed"]] - in_the_end(run)), ONE)
    return tell(arms, (end, lost, ROUNDS), lambda arm: f"it ends at {end.said(arm)}, {lost.said(arm)} lost")


def fairness(arms: Sequence[Arm]) -> Told:
    share = Column("Used", part_of("used", "share"), quantities.share)
    slowest = Column("Slowest tenth", part_of("used", "slowest_tenth_share"), quantities.share)
    fastest = Column("Fastest half", part_of("used", "fastest_half_share"), quantities.share)
    never = Column("Never used", part_of("used", "never_used_nodes"), ONE)
    without = Column("Nodes without use", unused, ONE)

    def say(arm: Arm) -> str:
        fast = f"{fastest.said(arm)} of the trainings of the fastest half are used"
        slow = f"{slowest.said(arm)} of those of the slowest tenth"
        slow = slow if slowest.values(arm) else "the slowest tenth finishes none"
        return f"{fast}, {slow}; nothing is used of {without.said(arm)} nodes"

    return tell(arms, (ROUNDS, share, slowest, fastest, never, without, LATE), say)


TABLES = {each.__name__: each for each in (crashes, hours, recovery, survival, late, losses, fairness)}
