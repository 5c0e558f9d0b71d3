"""What a node remembers of those who sent what cannot be used, or made nothing of what they were sent."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.protocol.api import Effect, Misbehaved, Received, Report, Trained
from plexus.protocol.facts import Refused
from plexus.protocol.messages import Ping
from plexus.protocol.participant import AGGREGATOR
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS
from plexus.protocol.trust import OVERTAKEN
from tests.protocol.kit import aggregate_request, answer, asked, hash_order, online_node, train_request

N = 6
LIAR, FASTEST = 3, 5
BANDWIDTHS = [1, 1, 1, 9, 1, 5]


def wary(me: int = 0, **options: Any) -> PlexusNode:
    return online_node(me, N, bandwidths=BANDWIDTHS, signed_views=True, **{"sample_size": N} | options)


def refusals(effects: list[Effect]) -> list[Refused]:
    return [each.fact for each in effects if isinstance(each, Report) and isinstance(each.fact, Refused)]


def test_who_misbehaved_is_asked_last_to_train() -> None:
    node = wary()
    node.handle(1.0, Misbehaved(LIAR))
    node.search(PARTICIPANTS, 1, 1)
    others = [each for each in hash_order(N, 1) if each not in (0, LIAR)]
    assert asked(node, node.outbox, PARTICIPANTS) == [*others, LIAR]


def test_who_misbehaved_is_not_asked_to_aggregate_and_nobody_comes_in_its_place() -> None:
    node = wary(sample_size=3)
    first = hash_order(N, 7)[:3]
    liar = next(each for each in first if each != 0)
    node.handle(1.0, Misbehaved(liar))
    node.search(AGGREGATOR, 7, 7)
    assert asked(node, node.outbox, AGGREGATOR) == [each for each in first if each not in (0, liar)]


def test_what_it_says_of_newer_rounds_does_not_count_until_it_is_forgiven() -> None:
    node = wary()
    node.handle(1.0, Misbehaved(LIAR))
    node.handle(2.0, Received(LIAR, Ping(0, 3)))
    assert node.watchdog.k_seen == 0
    for src in (1, 2):
        node.handle(3.0, Received(src, Ping(0, 3)))
    assert node.watchdog.k_seen == 3
    for src in (1, LIAR):
        node.handle(1e6, Received(src, Ping(0, 4)))
    assert node.watchdog.k_seen == 4


@pytest.mark.parametrize(("step", "is_remembered"), [(2**40, True), (200, False)])
def test_who_claims_a_step_that_no_view_explains_has_misbehaved(step: int, is_remembered: bool) -> None:
    node = wary()
    [refused] = refusals(node.handle(1.0, Received(LIAR, train_request(1, step=step, participants=N))))
    assert refused.why == "the round after it is too far ahead"
    assert node.trust.has_misbehaved(LIAR) is is_remembered


def test_where_everybody_is_honest_nothing_is_remembered() -> None:
    node = online_node(0, N)
    node.handle(1.0, Misbehaved(LIAR))
    assert not node.trust.has_misbehaved(LIAR)


def trained_for(node: PlexusNode, k: int, now: float) -> list[Effect]:
    """Somebody honest asks to train for round k, and the node has done so."""
    effects = node.handle(now, Received(1, train_request(k, participants=N)))
    node.handle(now, Trained(k, "t"))
    return effects + answer(node, AGGREGATOR, *(each for each in range(N) if each != node.me), now=now)


def test_an_aggregator_that_others_are_always_faster_than_has_failed() -> None:
    """So who never waits as long as the timeout, because it aggregates itself, finds out as well."""
    node = wary()
    trained_for(node, 1, 1.0)
    assert node.training.awaited == LIAR
    for k in range(2, 1 + OVERTAKEN):
        assert refusals(trained_for(node, k, float(k))) == []
        assert node.training.awaited == LIAR, "that may be an accident"
    [refused] = refusals(trained_for(node, 1 + OVERTAKEN, 9.0))
    assert (refused.src, refused.why) == (LIAR, "it made nothing of the models it was sent")
    assert node.training.awaited == FASTEST


def test_who_speaks_of_other_participants_than_the_rest_of_its_sample_is_named() -> None:
    node = wary(FASTEST, success_fraction=0.5)
    said: list[Refused] = []
    for src, participants in ((LIAR, 1), (1, N), (2, N)):
        request = aggregate_request(1, participants=participants)
        said += refusals(node.handle(1.0, Received(src, request)))
    assert said == [Refused(LIAR, "1 participants", "others of its sample say otherwise")]
    assert not node.aggregation.collecting


def test_who_speaks_of_more_participants_than_there_can_be_is_named() -> None:
    node = wary(FASTEST)
    node.handle(1.0, Received(1, aggregate_request(1, participants=N)))
    [refused] = refusals(node.handle(1.0, Received(LIAR, aggregate_request(1, participants=2**20))))
    assert (refused.src, refused.why) == (LIAR, "more participants than a sample has")
