"""Storms of many seeds, on all cores; and the way from a storm that breaks an invariant to a smaller one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from msgspec import Struct
from msgspec.structs import replace

from plexus.storm.plan import Plan, draw
from plexus.storm.storm import Finding, Outcome, run_storm

CHUNK = 5
"""Seeds that a process is given at a time."""
MOST_TRIES = 40
SHORTEST_S = 20.0


class Found(Struct, frozen=True):
    """A storm in which an invariant did not hold."""

    seed: int
    finding: Finding


class Report(Struct):
    """What `--json` prints."""

    first: int
    last: int
    """The greatest seed that was run; all from `first` on were."""
    seeds: int = 0
    violations: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    found: list[Found] = []


def run_seeds(first: int, last: int | None, minutes: float | None, workers: int) -> Report:
    """Run the storms from `first` to `last` (None: without end) on `workers` processes."""
    began_s = time.monotonic()
    until_s = began_s + 60 * minutes if minutes is not None else None
    report = Report(first, first - 1, found=[])
    chunks = _chunks(first, last)
    # Not fork: threads of numeric libraries do not survive it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        running: set[Future[tuple[int, int, float, list[Found]]]] = set()
        while True:
            while len(running) < 2 * workers and (until_s is None or time.monotonic() < until_s):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                running.add(pool.submit(run_chunk, *chunk))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _add(report, *future.result())
    report.found.sort(key=lambda found: found.seed)
    report.wall_s = time.monotonic() - began_s
    return report


def run_chunk(first: int, last: int) -> tuple[int, int, float, list[Found]]:
    """In a worker: what the storms from `first` to `last` found, and the CPU time they took."""
    began_s = time.process_time()
    found = []
    for seed in range(first, last + 1):
        finding = run_storm(draw(seed)).finding
        if finding is not None:
            found.append(Found(seed, finding))
    return first, last, time.process_time() - began_s, found


def _add(report: Report, first: int, last: int, cpu_s: float, found: list[Found]) -> None:
    report.seeds += last - first + 1
    report.last = max(report.last, last)
    report.cpu_s += cpu_s
    report.violations += len(found)
    report.found += found


def _chunks(first: int, last: int | None) -> Iterator[tuple[int, int]]:
    while last is None or first <= last:
        end = first + CHUNK - 1 if last is None else min(first + CHUNK - 1, last)
        yield first, end
        first = end + 1


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
    if plan.through_codec:
        yield replace(plan, through_codec=False)
    if plan.gone:
        yield replace(plan, gone=0)
    if plan.at_start < plan.nodes:
        yield replace(plan, at_start=plan.nodes)
