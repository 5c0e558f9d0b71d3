"""How runs are measured, so that they can be compared: at the same simulated times, by what they are at the
end, and with what a network adds to their bytes. docs/measuring.md is about this."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.report.arms import is_complete, reached_h
from plexus.report.document import half_width_95
from plexus.runs.result import Traffic
from plexus.runs.run import Run

Judge = Literal["mean", "best"]
"""Where every node has a model of its own: what counts is their mean, or the best of them (the paper's
rule for its Table II). A global model is judged as it is."""

LAST = 10
"""So many evaluations are the end of a session; of fewer than twice as many, the last half."""
RECORD_BYTES, RECORD_HEADER_BYTES = 2**14, 22
"""TLS 1.3: what a record holds, and its header, type and tag."""
SEGMENT_BYTES, SEGMENT_HEADER_BYTES = 1448, 52
"""What a segment holds where a packet has 1500 bytes, and the headers of IPv4 and TCP with timestamps."""


@dataclass(frozen=True)
class Cost:
    tta_h: float
    """Simulated time, in hours."""
    cta_gb: float
    """Sent by all nodes together, in 10⁹ bytes."""
    rta_h: float
    """Devices' time spent training, all together, in hours."""


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """`most` rows out of `count`, the first and the last among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.intp))


def values_of(run: Run, metric: str, judge: Judge) -> np.ndarray:
    """The metric at each evaluation, as it is judged."""
    if not (evaluations := run.tables["evaluations"]):
        return np.array([])
    best = f"{metric}_best"
    return np.asarray(evaluations[best if judge == "best" and best in evaluations else metric], float)


def cost_of(run: Run, values: np.ndarray, higher: bool, target: float | None) -> Cost | None:
    """What it took to come to the target for the first time, if it did."""
    if target is None:
        return None
    there = np.flatnonzero(values >= target if higher else values <= target)
    if not len(there):
        return None
    evaluations, first = run.tables["evaluations"], there[0]
    try:
        spent = [float(evaluations[name][first]) for name in ("simulated_s", "sent_bytes", "training_s")]
    except KeyError as missing:
        raise PlexusError(f"{run.path}/evaluations.csv: no column {missing.args[0]}") from None
    return Cost(spent[0] / 3600, spent[1] / 1e9, spent[2] / 3600)


def at_the_end(values: np.ndarray) -> float | None:
    """The mean of the last evaluations, which is what a session comes to; the best of many is partly luck."""
    last = values[-min(LAST, math.ceil(len(values) / 2)) :] if len(values) else values
    return None if np.isnan(last).all() else float(np.nanmean(last))


def common_grid_s(runs: Sequence[Run]) -> np.ndarray | None:
    """The moments at which these are compared: those of the run that was evaluated least often. None where
    all were at the same ones anyway. Live peers have no simulated time, and who was killed sets no pace."""
    simulated = [run for run in runs if not run.is_live and is_complete(run) and run.tables["evaluations"]]
    times = [run.tables["evaluations"]["simulated_s"].astype(float) for run in simulated]
    if not times:
        return None
    coarsest = max(times, key=lambda each: (round(each[-1] / len(each), 3), len(each)))
    if all(np.isin(each, coarsest).all() for each in times):
        return None
    # Should others go on for longer, it goes on for them at the same pace.
    end_s, step_s = max(each[-1] for each in times), coarsest[-1] / len(coarsest)
    return np.append(coarsest, np.arange(coarsest[-1] + step_s, end_s + step_s / 2, step_s))


def on_grid(run: Run, grid_s: np.ndarray | None) -> Run:
    """The run as if it had been evaluated at these moments alone: each shows the evaluation before it, and
    what was spent by then, which is taken to grow evenly between two evaluations."""
    evaluations = run.tables["evaluations"]
    if grid_s is None or run.is_live or not evaluations:
        return run
    times_s = evaluations["simulated_s"].astype(float)
    grid_s = grid_s[(grid_s >= times_s[0]) & (grid_s <= max(times_s[-1], 3600 * reached_h(run)))]
    before = np.searchsorted(times_s, grid_s, "right") - 1
    thin = {name: column[before] for name, column in evaluations.items()}
    for name in {"sent_bytes", "training_s"} & thin.keys():
        thin[name] = np.interp(grid_s, times_s, evaluations[name].astype(float))
    return replace(run, tables={**run.tables, "evaluations": {**thin, "simulated_s": grid_s}})


def header_bytes(messages: Mapping[str, Traffic]) -> int:
    """What TLS and TCP/IP add to these messages, were each sent for itself and of its type's mean size: the
    records and segments that it needs, and an acknowledgement for every second segment."""
    added = 0
    for traffic in messages.values():
        size = traffic.bytes / max(1, traffic.count)
        records = math.ceil(size / RECORD_BYTES)
        segments = math.ceil((size + RECORD_HEADER_BYTES * records) / SEGMENT_BYTES)
        packets = segments + math.ceil(segments / 2)
        added += traffic.count * (RECORD_HEADER_BYTES * records + SEGMENT_HEADER_BYTES * packets)
    return added


def with_headers(run: Run) -> Run:
    """The run as if headers had been counted: at each evaluation by as much more as in the whole session."""
    if run.result is None or not run.result.sent_bytes or "sent_bytes" not in run.tables["evaluations"]:
        return run
    factor = 1 + header_bytes(run.result.messages) / run.result.sent_bytes
    evaluations = run.tables["evaluations"]
    more = {**evaluations, "sent_bytes": evaluations["sent_bytes"].astype(float) * factor}
    return replace(run, tables={**run.tables, "evaluations": more})


def times_less(
    ours: Sequence[float], theirs: Sequence[float], same_seeds: bool
) -> tuple[float, float, float]:
    """How many times more `theirs` are, and from where to where that is in 95 of 100 cases.

    The ratio of the geometric means. Where the seeds are the same it is the mean of the seeds' own ratios,
    and so is its interval; else that is Welch's. Of a single seed it is from nothing to infinity.
    """
    if min(*ours, *theirs) <= 0:
        return math.inf, 0.0, math.inf
    one, other = np.log(theirs), np.log(ours)
    samples = [one - other] if same_seeds else [one, other]
    spread = half_width_95(*(each.tolist() for each in samples))
    low, middle, high = np.exp(one.mean() - other.mean() + np.array([-spread, 0.0, spread])).tolist()
    return middle, low, high
