"""Where members may lie, what one of them says of newer rounds ends nobody's work: neither word nor model."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.protocol.aggregation import LONE
from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    Durable,
    Effect,
    Received,
    TimerFired,
    Trained,
    WentOnline,
)
from plexus.protocol.facts import RoundRestarted
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.participant import AGGREGATOR
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS, RESTART
from plexus.protocol.trust import LOST
from plexus.protocol.watchdog import WATCHDOG
from plexus.testing.exchange import sent
from tests.protocol.kit import aggregate_request, exchange_of, make_node, online_node, pong, train_request

N, K = 6, 9
LIAR = 4
SHORT: dict[str, Any] = {"aggregation_timeout_s": 20.0, "ack_timeout_s": 60.0, "watchdog_s": 120.0}


def wary(me: NodeId = 5, **options: Any) -> PlexusNode:
    return online_node(
        me, N, **{"signed_views": True, "sample_size": N, "success_fraction": 0.5} | SHORT | options
    )


def says(node: PlexusNode, src: NodeId, k: int, now: float) -> None:
    node.handle(now, Received(src, Ping(77, k)))


def answers(node: PlexusNode, purpose: str, now: float, holding: dict[NodeId, int], k: int) -> list[Effect]:
    """All others answer, and repeat that somebody is at round k."""
    exchange = exchange_of(node, purpose)
    others = [each for each in range(N) if each != node.me]
    said = [pong(node, each, exchange, now, k, holding.get(each, 0)) for each in others]
    return [effect for effects in said for effect in effects]


def has_made(k: int, **options: Any) -> PlexusNode:
    """The aggregator of round k looks for its participants."""
    node = wary(**options)
    for src in (1, 2, 3):
        node.handle(1.0, Received(src, aggregate_request(k, f"t{src}", participants=N)))
    node.handle(1.5, Aggregated(k, "m"))
    return node


@pytest.mark.parametrize(
    ("holding", "pushes"),
    [({}, True), ({LIAR: K + 1}, True), ({1: K, 2: K}, False), ({LIAR: K, 2: K}, False)],
)
def test_what_is_aggregated_is_pushed_unless_several_have_something_as_new(
    holding: dict[NodeId, int], pushes: bool
) -> None:
    node = has_made(K)
    says(node, LIAR, K + 1, 1.6)
    effects = answers(node, PARTICIPANTS, 1.7, holding, k=K + 1)
    assert bool(sent(effects, TrainRequest)) is pushes


def test_where_nobody_lies_one_word_is_enough() -> None:
    node = has_made(K, signed_views=False)
    says(node, LIAR, K + 1, 1.6)
    assert not node.sampler.is_searching(PARTICIPANTS) or not sent(
        answers(node, PARTICIPANTS, 1.7, {}, k=K + 1), TrainRequest
    )


@pytest.mark.parametrize(
    ("holding", "is_late"), [({}, False), ({LIAR: K + 9}, False), ({1: K + 1, 2: K + 1}, True)]
)
def test_who_has_trained_is_too_late_only_if_several_have_the_next_model(
    holding: dict[NodeId, int], is_late: bool
) -> None:
    node = wary(0, late_rounds=20)
    node.handle(1.0, Received(3, train_request(K, participants=N)))
    says(node, LIAR, K + 3, 2.0)
    node.handle(5.0, Trained(K, "t", samples=7))
    effects = answers(node, AGGREGATOR, 5.1, holding, k=K + 3)
    assert bool(sent(effects, AggregateRequest)) is not is_late
    assert (node.late.current is not None) is is_late


# A model alone


def test_one_model_begins_no_round_and_a_second_of_the_same_round_does() -> None:
    node = wary()
    node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=N)))
    assert not node.aggregation.collecting
    node.handle(2.0, Received(2, aggregate_request(K, "t2", participants=N)))
    assert node.aggregation.collecting and node.aggregation.k_agg == K
    effects = node.handle(3.0, Received(3, aggregate_request(K, "t3", participants=N)))
    [made] = [each for each in effects if isinstance(each, Aggregate)]
    assert made.models == ("t1", "t2", "t3"), "the first counts, too"


def test_a_newer_model_of_one_does_not_void_what_was_collected() -> None:
    node = wary()
    for src in (1, 2):
        node.handle(1.0, Received(src, aggregate_request(K, f"t{src}", participants=N)))
    effects = node.handle(2.0, Received(LIAR, aggregate_request(K + 1, "bad", participants=N)))
    assert sent(effects, Ack) == [] and node.aggregation.k_agg == K
    effects = node.handle(3.0, Received(3, aggregate_request(K, "t3", participants=N)))
    assert [made.models for made in effects if isinstance(made, Aggregate)] == [("t1", "t2", "t3")]


def test_two_newer_models_of_one_round_do() -> None:
    node = wary()
    for src in (1, 2):
        node.handle(1.0, Received(src, aggregate_request(K, f"t{src}", participants=N)))
    node.handle(2.0, Received(3, aggregate_request(K + 1, "t3", participants=N)))
    effects = node.handle(2.0, Received(4, aggregate_request(K + 1, "t4", participants=N)))
    assert sent(effects, Ack) == [(1, Ack(K, used=0)), (2, Ack(K, used=0))]
    assert node.aggregation.collecting and node.aggregation.k_agg == K + 1


def test_a_model_that_stays_alone_counts_when_its_time_is_up() -> None:
    node = wary()
    node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=N)))
    effects = node.handle(21.0, TimerFired(LONE))
    effects += node.handle(21.0, TimerFired(("aggregation", 0)))
    assert [made.models for made in effects if isinstance(made, Aggregate)] == [("t1",)]
    assert sent(effects, Ack) == [(1, Ack(K, used=1))]


def test_a_model_that_stays_alone_waits_until_what_is_under_way_is_done() -> None:
    node = has_made(K)
    node.handle(2.0, Received(LIAR, aggregate_request(K + 1, "t4", participants=N)))
    node.handle(22.0, TimerFired(LONE))
    assert node.is_indispensable and node.aggregation.k_agg == K, "it still looks for participants"
    assert sent(answers(node, PARTICIPANTS, 22.5, {}, k=K), TrainRequest)
    node.handle(26.0, TimerFired(LONE))
    assert node.aggregation.k_agg == K + 1


def test_a_model_that_others_have_left_behind_is_sent_back() -> None:
    node = wary()
    node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=N)))
    node.handle(5.0, Received(3, train_request(K + 1, participants=N)))
    assert sent(node.handle(21.0, TimerFired(LONE)), Ack) == [(1, Ack(K, used=0))]


def test_no_more_models_wait_than_there_is_room_for() -> None:
    node = online_node(20, 30, signed_views=True, sample_size=30, **SHORT)
    answered = [
        to
        for src in range(12)
        for to, _ in sent(
            node.handle(1.0, Received(src, aggregate_request(K + src, f"t{src}", participants=30))), Ack
        )
    ]
    assert answered == [0, 1, 2, 3]


def test_of_two_nodes_each_word_counts() -> None:
    node = online_node(1, 2, signed_views=True, sample_size=2, **SHORT)
    node.handle(1.0, Received(0, aggregate_request(K, "t0", participants=2)))
    assert node.aggregation.collecting


# Progress


def due(node: PlexusNode, at: float) -> bool:
    node.handle(at, TimerFired(WATCHDOG))
    return node.sampler.is_searching(RESTART)


def begun() -> PlexusNode:
    node = wary(0)
    node.handle(1.0, Received(3, train_request(K, participants=N)))
    node.handle(2.0, Trained(K, "t", samples=7))
    answers(node, AGGREGATOR, 2.1, {}, k=K)
    node.handle(3.0, Received(5, Ack(K + 1)))
    assert not node.training.busy
    return node


def test_who_speaks_of_the_next_round_again_and_again_keeps_nobody_from_starting_again() -> None:
    node = begun()
    for i in range(1, 9):
        says(node, LIAR, K + 1 + i, 3.0 + 30 * i)
        node.handle(3.0 + 30 * i, Received(2, Pong(99, K + 1 + i, K, node.membership.event)))
    assert node.watchdog.k_seen == K + 9 and due(node, 250.0)
    says(node, LIAR, K + 12, 250.1)
    effects = []
    for _ in range(N):
        effects += answers(node, RESTART, 250.2, dict.fromkeys(range(N), K), k=K + 12)
        if not node.sampler.is_searching(RESTART):
            break
    if not any(isinstance(getattr(each, "fact", None), RoundRestarted) for each in effects):
        assert due(node, 2000.0), "left to others once, which brought nothing"


def test_two_members_that_have_to_do_with_a_newer_round_are_progress() -> None:
    node = begun()
    says(node, 2, K + 1, 100.0)
    says(node, 3, K + 1, 101.0)
    assert not due(node, 150.0)


def test_who_was_misled_about_rounds_sees_progress_again() -> None:
    lost = LOST * 100
    node = make_node(
        0, N, signed_views=True, sample_size=N, **SHORT, durable=Durable(3, lost, "m", ordinal=9)
    )
    node.handle(0.0, WentOnline())
    node.notice_own_work(lost)
    for src, k in ((1, 50), (2, 51)):
        pong(node, src, 99, now=1.0, k=k)
    assert node.watchdog.k_seen == 51
    for src in (1, 2):
        says(node, src, 52, 100.0)
    assert node.watchdog.progress_at == 100.0


def test_who_repeats_what_it_hears_is_no_second_word() -> None:
    node = begun()
    says(node, LIAR, K + 3, 50.0)
    node.handle(100.0, Received(2, Pong(99, K + 3, K, node.membership.event)))
    assert due(node, 200.0)


def test_what_comes_late_is_offered_once_several_have_gone_on() -> None:
    node = wary(0, late_rounds=20)
    node.handle(1.0, Received(3, train_request(K, participants=N)))
    says(node, 2, K + 3, 2.0)
    node.handle(5.0, Trained(K, "t", samples=7))
    effects = answers(node, AGGREGATOR, 5.1, {1: K + 1, 2: K + 3}, k=K + 3)
    effects += answers(node, "late", 5.2, {}, k=K + 3)
    assert [late.trained_in for _, late in sent(effects, LateModel)] == [K]
