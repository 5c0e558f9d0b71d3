"""Who is better, and by how much: the cost of reaching one and the same accuracy, as the paper counts it.

Time- (TTA), communication- (CTA) and training-resources-to-accuracy (RTA) are what the clock, the bytes sent
and the training time of all devices show at the first evaluation that is as good as the target.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial

import numpy as np

from plexus import quantities
from plexus.errors import PlexusError
from plexus.report import measuring
from plexus.report.arms import Arm, common_metric
from plexus.report.document import Cell, Quantity, Table, number, over_seeds
from plexus.report.measuring import Cost, Judge

REFERENCES = frozenset({"fedavg", "fedbuff"})
"""What needs a server is shown, but is no baseline of decentralized learning."""

UNITS = (("GB", "10⁹", 1.0), ("MB", "10⁶", 1e3), ("kB", "10³", 1e6))
"""Of communication, with how many are in a GB."""

ENOUGH_EVALUATIONS = 5
"""With fewer a cost, which is read at an evaluation, says little."""


@dataclass(frozen=True)
class ArmOutcome:
    label: str
    is_ours: bool
    is_complete: bool
    seeds: tuple[int, ...]
    end: tuple[float, ...]
    """The metric at the end, as the mean of the last evaluations; nothing of a run that had none."""
    best: tuple[float, ...]
    """The best of all looks, which partly is luck."""
    costs: tuple[Cost | None, ...]
    """None: this seed never came to the target."""
    savings: Cost | None = None
    """How many times less than the best baseline, in each of the three, where both came to the target
    with every seed."""
    savings_95: tuple[Cost, Cost] | None = None
    """From where to where each of them is in 95 of 100 cases; None where one of the two has one seed."""
    evaluations: int = 0
    """How often it was evaluated; of several seeds, the least."""
    has_own_models: bool = False
    used: tuple[float, ...] = ()
    """The share of trainings that are behind the final model, where it is known."""

    @property
    def cost_over_seeds(self) -> list[Quantity]:
        """The three parts, over the seeds that came to the target; nothing where none did."""
        costs = [astuple(cost) for cost in self.costs if cost is not None]
        return [over_seeds(column, number) for column in zip(*costs, strict=True)]


@dataclass(frozen=True)
class Comparison:
    metric: str
    higher_is_better: bool
    judge: Judge
    target: float | None
    """None: nothing was evaluated."""
    target_is: str
    """Where the target comes from, in words."""
    best_baseline: str | None
    arms: tuple[ArmOutcome, ...]
    looks: int
    """How often the metric was looked at, by which it is judged."""
    is_thinned: bool
    """Whether some runs were evaluated at other times, and of them only what all have is taken."""
    headers: bool
    """Whether bytes are with what TLS and TCP/IP add."""
    stated: str = ""
    """What all have in common and a reader should know."""


def compare(
    arms: Sequence[Arm], target: float | None = None, judge: Judge = "mean", headers: bool = False
) -> Comparison:
    """What each arm needs to come to the target, and what ours saves, all at the same simulated times.

    Without a target given it is the paper's: the best that the best baseline became, here with every
    seed. Without a baseline it is the best that all arms came to. `headers` counts those of packets, too.
    """
    if not arms:
        raise PlexusError("nothing to compare: no run was given")
    metric, higher = common_metric(arms)
    looked = [min(len(run.tables["evaluations"].get(metric, ())) for run in arm.runs) for arm in arms]
    grid_s = measuring.common_grid_s([run for arm in arms for run in arm.runs])
    if headers:
        arms = [replace(arm, runs=tuple(map(measuring.with_headers, arm.runs))) for arm in arms]
    arms = [replace(arm, runs=tuple(measuring.on_grid(run, grid_s) for run in arm.runs)) for arm in arms]
    values = {arm.label: [measuring.values_of(run, metric, judge) for run in arm.runs] for arm in arms}
    best_of = np.nanmax if higher else np.nanmin
    known = {label: [each for each in found if not np.isnan(each).all()] for label, found in values.items()}
    bests = {label: tuple(float(best_of(each)) for each in found) for label, found in known.items()}
    baseline = _best_baseline(arms, bests, higher)
    target_is = "given"
    if target is None:
        target, target_is = _target(arms, bests, baseline, higher)
    outcomes = [
        replace(_outcome(arm, values[arm.label], bests[arm.label], higher, target), evaluations=times)
        for arm, times in zip(arms, looked, strict=True)
    ]
    best = baseline.label if baseline else None
    against = next((outcome for outcome in outcomes if outcome.label == best), None)
    compared = tuple(_with_savings(outcome, against) for outcome in outcomes)
    looks = max(len(each) for found in values.values() for each in found)
    how = looks, grid_s is not None, headers, _stated(arms)
    return Comparison(metric, higher, judge, target, target_is, best, compared, *how)


def _stated(arms: Sequence[Arm]) -> str:
    """What would be asked first if it were left out."""
    spec, said = arms[0].spec, []
    if (augment := spec["task"].get("augment")) is not None:
        said.append(f"Training images are {'' if augment else 'not '}augmented.")
    if arms[0].has_churn:
        crashes = 1 - spec.get("traces", {}).get("graceful_share", 1.0)
        announced = "Who leaves says so."
        said.append(f"Of the leaves {quantities.share(crashes)} are crashes." if crashes else announced)
    return " ".join(said)


def summary_table(
    arms: Sequence[Arm],
    target: float | None = None,
    judge: Judge = "mean",
    id: str = "summary",
    title: str = "Cost of reaching the target",
) -> Table:
    """The paper's Table II, of these arms."""
    return table_of(compare(arms, target, judge), id, title)


def table_of(comparison: Comparison, id: str = "summary", title: str = "Summary") -> Table:
    name = quantities.metric_name(comparison.metric)
    unit, _, per_gb = _unit(comparison)
    columns = ["Method", f"End {name}", f"Best {name}", "TTA [h]", f"CTA [{unit}]", "RTA [h]"]
    if any(outcome.savings for outcome in comparison.arms):
        columns += ["TTA saved", "CTA saved", "RTA saved"]
    has_used = any(outcome.used for outcome in comparison.arms)
    write = partial(quantities.metric, comparison.metric)
    rows = []
    for outcome in comparison.arms:
        is_best = outcome.label == comparison.best_baseline
        row: list[Cell] = [f"{outcome.label} (best baseline)" if is_best else outcome.label]
        row += [over_seeds(values, write) for values in (outcome.end, outcome.best)]
        row += _cost_cells(outcome, per_gb)
        if len(columns) > len(row):
            row += saved(outcome) or [""] * 3
        if has_used:
            row.append(over_seeds(outcome.used, quantities.share))
        rows.append((*row, quantities.ranges(outcome.seeds)))
    headings = (*columns, *(["Used"] if has_used else []), "Seeds")
    return Table(id, title, headings, tuple(rows), _note(comparison))


def _unit(comparison: Comparison) -> tuple[str, str, float]:
    """In which the largest communication here is a number that people read."""
    sent_gb = [cost.cta_gb for outcome in comparison.arms for cost in outcome.costs if cost is not None]
    most_gb = max(sent_gb, default=1.0) or 1.0
    return next((unit for unit in UNITS if most_gb * unit[-1] >= 0.1), UNITS[-1])


def _cost_cells(outcome: ArmOutcome, per_gb: float) -> Sequence[Quantity]:
    costs = [cost and replace(cost, cta_gb=cost.cta_gb * per_gb) for cost in outcome.costs]
    cells, reached = replace(outcome, costs=tuple(costs)).cost_over_seeds, len(costs) - costs.count(None)
    if not cells:
        return [Quantity("not reached", None)] * 3
    if reached == len(outcome.costs):
        return cells
    # A mean over the seeds that made it would flatter the arm: say how many did, and give no number.
    return [Quantity(f"{reached} of {len(outcome.costs)} seeds: {cell.text}", None) for cell in cells]


def saved(outcome: ArmOutcome) -> list[Quantity]:
    """How many times less than the best baseline, and from where to where; of noise no number."""
    if outcome.savings is None:
        return []
    times = astuple(outcome.savings)
    if outcome.savings_95 is None:
        return [Quantity(f"{number(x)}×", x) for x in times]
    bounds = zip(times, *map(astuple, outcome.savings_95), strict=True)
    return [
        Quantity("within noise", None)
        if low <= 1 <= high
        else Quantity(f"{number(x)}× ({number(low)}–{number(high)})", x)
        for x, low, high in bounds
    ]


def findings(comparison: Comparison) -> str:
    name = quantities.metric_name(comparison.metric)
    goal = quantities.metric(comparison.metric, comparison.target)
    found, against = [_best_of(comparison, name)], comparison.best_baseline
    for outcome in comparison.arms:
        if cells := saved(outcome):
            parts = list(zip(("time", "communication", "training"), cells, strict=True))
            needs = [f"{_times(x.value or 0.0)} {part}" for part, x in parts if "×" in x.text]
            alike = [part for part, x in parts if "×" not in x.text]
            text = f"To come to {name} {goal}, {outcome.label} needs {_and(needs)} than {against}"
            text += ", the best baseline."
            if outcome.savings_95 is None:
                text += " One seed has no interval: that may be noise."
            same = f"{_and(alike)} to come to {name} {goal}: {outcome.label} and {against}"
            same += ", the best baseline, are within noise."
            found.append(text if needs else "")
            found.append(same[0].upper() + same[1:] if alike else "")
    ours = [outcome for outcome in comparison.arms if outcome.is_ours and outcome.is_complete]
    judged = [*ours, *(outcome for outcome in comparison.arms if outcome.label == against)]
    if against and (short := [outcome.label for outcome in judged if None in outcome.costs]):
        found.append(f"{'; '.join(short)} did not come to {name} {goal} with every seed.")
    return "\n\n".join(filter(None, found))


def _best_of(comparison: Comparison, name: str) -> str:
    """Who is best at the end, and who cannot be told from it."""
    write = partial(quantities.metric, comparison.metric)
    complete = [outcome for outcome in comparison.arms if outcome.is_complete and outcome.end]
    bests = {outcome.label: over_seeds(outcome.end, write) for outcome in complete}
    if len(bests) < 2:
        return ""
    sign = 1 if comparison.higher_is_better else -1
    label = max(bests, key=lambda each: sign * (bests[each].value or 0.0))
    best = bests.pop(label)
    text = f"The best {name} at the end is that of {label}: {best.text}."
    within = [each for each, other in bests.items() if best.meets(other)]
    unknown = [each for each, other in bests.items() if other.spread is None]
    if best.spread is None:
        return f"{text} One seed has no interval: whether the others differ is not known."
    if within:
        is_all = len(within) == len(bests) > 2
        text += f" Within their intervals: {'all others' if is_all else '; '.join(within)}."
    return text + (f" Of one seed, and so without an interval: {'; '.join(unknown)}." if unknown else "")


def _times(saved: float) -> str:
    return f"{number(saved)} times less" if saved >= 1 else f"{number(1 / saved)} times more"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _note(comparison: Comparison) -> str:
    name = quantities.metric_name(comparison.metric)
    goal = quantities.metric(comparison.metric, comparison.target)
    whose = "the mean over nodes"
    if comparison.judge == "best":
        whose = "that of the best node at the time, as in the paper's Table II"
    unit, bytes_each, _ = _unit(comparison)
    sent = f"bytes sent by all nodes ({unit}, {bytes_each}{', with headers' if comparison.headers else ''})"
    at_times = "of it" if comparison.looks == 1 else f"of {comparison.looks} evaluations"
    costs = f"hours (simulated or live), {sent}, device hours training"
    parts = [
        f"Target: {name} {goal} ({comparison.target_is}).",
        f"TTA, CTA, RTA: {costs} at the first evaluation that is as good as the target.",
        f"Where every node has its own model, the metric is {whose}.",
        f"End: the mean of the last {measuring.LAST} (at most half) {at_times}; best: the best {at_times}.",
        comparison.stated,
    ]
    if comparison.is_thinned:
        parts.append("Runs were evaluated at different times: all are seen at those of the least often seen.")
    if any(len(outcome.seeds) > 1 for outcome in comparison.arms):
        parts.append("Mean over seeds ± its 95 % interval; what is within noise is no difference.")
    if any(outcome.used for outcome in comparison.arms):
        parts.append("Used: the share of finished trainings that are behind the final model, late ones too.")
    return " ".join(filter(None, [*parts, *_coarse(comparison.arms)]))


def _coarse(arms: Sequence[ArmOutcome]) -> Iterator[str]:
    """A warning where costs depend more on when models were looked at than on how well they learned."""
    seldom: dict[tuple[int, str], list[str]] = {}
    for arm in arms:
        if arm.is_complete and 0 < arm.evaluations < ENOUGH_EVALUATIONS:
            key = "every_hours" if arm.has_own_models else "every_rounds"
            seldom.setdefault((arm.evaluations, key), []).append(arm.label)
    for (times, key), labels in seldom.items():
        often = {1: "once", 2: "twice"}.get(times, f"{times} times")
        was, its = ("was", "its") if len(labels) == 1 else ("were", "their")
        who = "; ".join(labels)
        yield f"{who} {was} evaluated only {often}: {its} costs are coarse; see evaluation.{key}."


def _best_baseline(arms: Sequence[Arm], bests: dict[str, tuple[float, ...]], higher: bool) -> Arm | None:
    # One's own protocol, `module:name`, is no baseline: it may be a variation of Plexus.
    known = [arm for arm in arms if not arm.is_ours and ":" not in arm.protocol]
    others = [arm for arm in known if arm.is_complete and bests[arm.label]]
    candidates = [arm for arm in others if arm.protocol not in REFERENCES] or others
    if not candidates or not any(arm.is_ours for arm in arms):
        return None
    sign = 1 if higher else -1
    return max(candidates, key=lambda arm: sign * statistics.fmean(bests[arm.label]))


def _target(
    arms: Sequence[Arm], bests: dict[str, tuple[float, ...]], baseline: Arm | None, higher: bool
) -> tuple[float | None, str]:
    least = min if higher else max
    if baseline is not None:
        several = ", with every seed" if len(baseline.runs) > 1 else ""
        return least(bests[baseline.label]), f"the best that {baseline.label} became{several}"
    complete = [bests[arm.label] for arm in arms if arm.is_complete] or list(bests.values())
    reached = [value for values in complete for value in values]
    return (least(reached) if reached else None), "the best that every run here came to"


def _outcome(
    arm: Arm, found: Sequence[np.ndarray], best: tuple[float, ...], higher: bool, target: float | None
) -> ArmOutcome:
    costs = tuple(
        measuring.cost_of(run, values, higher, target) for run, values in zip(arm.runs, found, strict=True)
    )
    ends = tuple(end for end in map(measuring.at_the_end, found) if end is not None)
    shares = [run.result.used.share for run in arm.runs if run.result and run.result.used]
    used = tuple(share for share in shares if share is not None)
    what = arm.label, arm.is_ours, arm.is_complete, arm.seeds
    return ArmOutcome(*what, ends, best, costs, has_own_models=arm.has_own_models, used=used)


def _with_savings(outcome: ArmOutcome, against: ArmOutcome | None) -> ArmOutcome:
    ours, theirs = [*outcome.costs], [*against.costs] if against else []
    if not (outcome.is_ours and outcome.is_complete and ours and theirs) or None in ours + theirs:
        return outcome
    same_seeds = against is not None and outcome.seeds == against.seeds
    both = (zip(*(astuple(cost) for cost in costs if cost), strict=True) for costs in (ours, theirs))
    found = [measuring.times_less(mine, other, same_seeds) for mine, other in zip(*both, strict=True)]
    savings, low, high = (Cost(*each) for each in zip(*found, strict=True))
    is_known = min(len(ours), len(theirs)) > 1
    return replace(outcome, savings=savings, savings_95=(low, high) if is_known else None)
