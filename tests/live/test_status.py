"""What a peer tells of its facts: rounds as people count them, and others by their names."""

from __future__ import annotations

from io import StringIO
from typing import Any

import msgspec

from plexus.live.identity.keys import short
from plexus.live.operator.log import Log
from plexus.live.operator.status import FactObserver
from plexus.live.transport.limits import LiveRoster
from plexus.protocol.facts import (
    Fact,
    QuorumMissing,
    SampleDerived,
    Suspected,
    TrainingInterrupted,
    TrainingStarted,
)

ME, OTHER = b"m" * 16, b"o" * 16


def observed(*facts: Fact) -> tuple[FactObserver, list[dict[str, Any]]]:
    """The observer of a peer that holds round 5, and what it has written."""
    roster = LiveRoster(b"session", ME, 10)
    roster.number(OTHER)
    observer = FactObserver(roster, Log(stream := StringIO()), 5)
    for fact in facts:
        observer.fact(fact)
    return observer, [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


def test_rounds_are_ordinals_and_the_numbers_stand_beside_them() -> None:
    observer, lines = observed(
        TrainingStarted(38, 6), TrainingInterrupted(38, 6), SampleDerived(74, 7, "participants", (0, 1), 0)
    )
    assert [(line.get("round"), line["number"]) for line in lines] == [(6, 38), (6, 38), (7, 74)]
    assert observer.sample == {"round": 7, "nodes": [short(ME), short(OTHER)]}
    assert observer.round == 7


def test_a_peer_that_has_done_nothing_yet_is_in_the_round_that_it_holds() -> None:
    assert observed(TrainingStarted(2, 2), Suspected(1))[0].round == 5


def test_who_is_suspected_has_a_name_and_who_is_missed_a_number() -> None:
    _, lines = observed(Suspected(1), QuorumMissing(38, 6, 1, 3))
    assert lines[0]["peer"] == short(OTHER)
    assert (lines[1]["found"], lines[1]["needed"]) == (1, 3)
