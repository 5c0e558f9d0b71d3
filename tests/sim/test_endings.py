"""Simulated sessions that end by what is measured, where one node measures something else than all others."""

from __future__ import annotations

from itertools import pairwise

from plexus.protocol.api import Measured
from plexus.protocol.facts import AggregationCompleted, EndClaimed, EndRevoked, RoundRestarted, SessionEnded
from plexus.protocol.parameters import Course
from tests.sim.kit import Session

ACK_S, WATCHDOG_S = 60.0, 900.0


def test_a_mistaken_end_costs_no_watchdog() -> None:
    """The fastest of six aggregates every round and is content with what it made of the fifth."""
    course = Course(until="accuracy >= 0.9")
    timeouts = {"ack_timeout_s": ACK_S, "watchdog_s": WATCHDOG_S, "aggregation_timeout_s": 20.0}
    session = Session(6, course=course, signed_views=True, sample_size=6, success_fraction=0.5, **timeouts)
    runtime, told = session.runtime, 0
    while runtime.kernel.now < 2 * WATCHDOG_S:
        session.run(runtime.kernel.now + 1.0)
        for _, node, fact in session.facts[told:]:
            is_fifth = isinstance(fact, AggregationCompleted) and fact.ordinal == 5
            if is_fifth or isinstance(fact, EndClaimed):
                found = 0.95 if is_fifth else 0.5
                measured = Measured(fact.round, fact.ordinal, fact.model, found, {"accuracy": found})
                runtime.tell(node, measured)
        told = len(session.facts)
    [(ended_s, mistaken, _)] = session.of(SessionEnded)
    [(revoked_s, by, _)] = session.of(EndRevoked)
    assert mistaken == by
    assert revoked_s - ended_s >= ACK_S
    after = [at for at, _, fact in session.of(AggregationCompleted) if at > ended_s]
    assert after[0] - ended_s < ACK_S
    assert max(b - a for a, b in pairwise(after)) < ACK_S
    assert len(session.of(RoundRestarted)) <= 6
