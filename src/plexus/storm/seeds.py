"""From a storm that breaks an invariant to a smaller one that still does."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from plexus.storm.plan import Plan
from plexus.storm.storm import Outcome, run_storm

MOST_TRIES = 40
SHORTEST_S = 20.0


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
