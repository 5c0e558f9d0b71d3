"""Storms by the hundred, on all cores; from one that breaks an invariant to a smaller one that still does."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from plexus.errors import PlexusError
from plexus.machine import Heard, Pool, Say
from plexus.storm.plan import Plan, draw
from plexus.storm.storm import Finding, Outcome, run_storm

CHUNK = 5
MOST_TRIES = 40
SHORTEST_S = 20.0


class BrokenSeed(Struct, frozen=True):
    """A storm in which an invariant did not hold."""

    seed: int
    finding: Finding


class SeedsReport(Struct):
    first: int
    last: int
    """The greatest seed that was run; all from `first` on were."""
    seeds: int = 0
    violations: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    found: list[BrokenSeed] = []


def run_seeds(first: int, last: int | None, minutes: float | None, workers: int) -> SeedsReport:
    """Run the storms from `first` to `last` (None: without end) on so many processes, for so long at most."""
    began_s = time.monotonic()
    until_s = began_s + 60 * (math.inf if minutes is None else minutes)
    report = SeedsReport(first, first - 1, found=[])
    Pool(run_chunk, workers).run(_chunks(first, last, until_s), partial(_add, report))
    report.found.sort(key=lambda found: found.seed)
    report.wall_s = time.monotonic() - began_s
    return report


def _chunks(first: int, last: int | None, until_s: float) -> Iterator[range]:
    while (last is None or first <= last) and time.monotonic() < until_s:
        end = first + CHUNK if last is None else min(first + CHUNK, last + 1)
        yield range(first, end)
        first = end


def run_chunk(seeds: range, say: Say) -> tuple[float, list[BrokenSeed]]:
    """In a worker: the CPU time that these storms took, and what they found."""
    began_s = time.process_time()
    found = []
    for seed in seeds:
        if (finding := run_storm(draw(seed)).finding) is not None:
            found.append(BrokenSeed(seed, finding))
        say(seed)
    return time.process_time() - began_s, found


def _add(report: SeedsReport, news: Heard) -> None:
    if news.kind == "failed":
        raise PlexusError(f"seeds {news.job[0]}..{news.job[-1]}: {news.value}")
    if news.kind == "done":
        cpu_s, found = news.value
        report.seeds += len(news.job)
        report.last = max(report.last, news.job[-1])
        report.cpu_s += cpu_s
        report.violations += len(found)
        report.found += found


def shrink(outcome: Outcome) -> Outcome:
    """The same invariant broken with fewer faults, in less time, if that is possible."""
    assert outcome.finding is not None
    invariant = outcome.finding.invariant
    tries = 0
    candidates = _smaller(outcome.plan)
    while tries < MOST_TRIES and (plan := next(candidates, None)) is not None:
        tries += 1
        tried = run_storm(plan)
        if tried.finding is not None and tried.finding.invariant == invariant:
            outcome, candidates = tried, _smaller(plan)
    return outcome


def _smaller(plan: Plan) -> Iterator[Plan]:
    if plan.storm_s > SHORTEST_S:
        storm_s = plan.storm_s / 2
        within = (fault for fault in plan.faults if fault.from_s < storm_s)
        faults = tuple(replace(fault, until_s=min(fault.until_s, storm_s)) for fault in within)
        yield replace(plan, storm_s=storm_s, faults=faults)
    for fault in plan.faults:
        yield replace(plan, faults=tuple(other for other in plan.faults if other is not fault))
    for liar in plan.liars:
        yield replace(plan, liars={node: how for node, how in plan.liars.items() if node != liar})
    if plan.through_codec:
        yield replace(plan, through_codec=False)
    if plan.gone:
        yield replace(plan, gone=0)
    if plan.at_start < plan.nodes:
        yield replace(plan, at_start=plan.nodes)
