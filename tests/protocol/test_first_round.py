"""The first round: nobody starts it, so everybody derives the first sample and its members begin."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from plexus.protocol.api import (
    Aggregated,
    CancelTimer,
    Durable,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Train,
)
from plexus.protocol.facts import RoundRestarted, SampleDerived, TrainingStarted
from plexus.protocol.messages import Ping, Pong
from plexus.protocol.quorum import FIRST_SAMPLE
from plexus.protocol.view import JOINED, event_number
from plexus.testing.exchange import INITIAL, sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    answer,
    come_online,
    exchange_of,
    hash_order,
    make_node,
    online_node,
    pong,
    silence,
)

N, S = 5, 2
FIRST = hash_order(N, 1)
START = TimerFired(("start", 0))


def test_a_member_of_the_first_sample_pings_the_others_and_trains_the_initial_model() -> None:
    me, other = FIRST[:2]
    node = online_node(me, N)
    assert node.handle(5.0, START) == [Send((other,), Ping(2, 1)), SetTimer(("ping", 2), 1.0)]
    assert pong(node, other, 2, 5.1)[:5] == [
        CancelTimer(("ping", 2)),
        Report(SampleDerived(1, 1, FIRST_SAMPLE, (me, other), 0)),
        Train(1, INITIAL),
        Report(TrainingStarted(1, 1)),
        Save(Durable(2, 1, INITIAL, ANY, 1)),
    ]


@pytest.mark.parametrize("rank", range(S, N))
def test_who_is_not_in_the_first_sample_does_nothing(rank: int) -> None:
    assert online_node(FIRST[rank], N).handle(5.0, START) == []


def test_exactly_the_first_sample_trains_in_the_first_round() -> None:
    exchange = Exchange(N)
    exchange.go_online(*range(N))
    exchange.run(8.0)
    started = [(node, fact.round) for _, node, fact in exchange.of(TrainingStarted)]
    assert sorted(started) == sorted((node, 1) for node in FIRST[:S])


def test_who_joins_a_session_under_way_learns_so_from_the_first_pong() -> None:
    me, other = FIRST[:2]
    node = online_node(me, N)
    node.handle(5.0, START)
    effects = pong(node, other, 2, 5.1, k=40, held=39)
    assert effects == [CancelTimer(("ping", 2))]
    assert node.watchdog.k_seen == 40


def test_who_is_a_little_slower_than_others_in_the_first_round_still_trains() -> None:
    """These have trained already and look for an aggregator, which has made nothing yet."""
    me, other = FIRST[:2]
    node = online_node(me, N)
    node.handle(5.0, START)
    assert any(isinstance(effect, Train) for effect in pong(node, other, 2, 5.1, k=2, held=1))


def test_who_heard_of_a_later_round_does_not_begin_the_first() -> None:
    node = online_node(FIRST[0], N)
    node.handle(1.0, Received(FIRST[3], Ping(3, 2)))
    assert node.handle(5.0, START) == []


def test_others_that_begin_the_first_round_too_are_no_reason_not_to() -> None:
    node = online_node(FIRST[0], N)
    node.handle(5.0, START)
    effects = node.handle(5.1, Received(FIRST[1], Ping(3, 1)))
    assert sent(effects) == [(FIRST[1], Pong(3, 0, 0, event_number(1, JOINED)))], "and goes on asking"
    assert node.sampler.is_searching(FIRST_SAMPLE)


def test_who_still_waits_begins_when_another_has_begun() -> None:
    """Nodes do not come at the same instant: who kept waiting would miss the round."""
    node = online_node(FIRST[0], N)
    effects = node.handle(1.0, Received(FIRST[1], Ping(3, 1)))
    assert CancelTimer(("start", 0)) in effects
    assert sent(effects, Ping) == [(FIRST[1], Ping(2, 1))]
    assert sent(node.handle(1.1, Received(FIRST[1], Ping(4, 1))), Ping) == [], "once"


def test_who_still_waits_is_not_moved_by_pings_of_other_rounds() -> None:
    node = online_node(FIRST[0], N)
    assert sent(node.handle(1.0, Received(FIRST[1], Ping(0, 0))), Ping) == []


def test_who_has_been_in_a_round_before_does_not_wait_for_the_first() -> None:
    node = make_node(0, N, durable=Durable(3, 7, "m7"))
    timers = [e.key for e in come_online(node) if isinstance(e, SetTimer)]
    assert ("start", 0) not in timers


def test_a_first_sample_found_late_does_not_train_a_later_model_as_the_first() -> None:
    """The node aggregated round 2 for faster members while a silent one held up its own search."""
    me = FIRST[0]  # and FIRST[1] is silent
    node = online_node(me, N)
    node.handle(5.0, START)
    node.handle(6.0, Received(FIRST[2], aggregate_request(2, participants=1)))
    node.handle(6.0, Aggregated(2, "m2"))
    silence(node, exchange_of(node, FIRST_SAMPLE), 7.0)
    effects = answer(node, FIRST_SAMPLE, FIRST[2], now=7.1)
    assert SampleDerived(1, 1, FIRST_SAMPLE, (me, FIRST[2]), 1) in [
        effect.fact for effect in effects if isinstance(effect, Report)
    ]
    assert not any(isinstance(effect, Train) for effect in effects)


def test_silent_members_of_the_first_sample_cost_time_but_not_the_session() -> None:
    exchange = Exchange(N, sample_size=3, success_fraction=1.0)
    exchange.go_online(*(node for node in range(N) if node != FIRST[1]))
    exchange.run_until(exchange.has_aggregated(4), limit_s=500)


def test_if_the_first_of_the_order_never_came_those_who_are_there_begin() -> None:
    """Whom a node that comes online asks in vain it takes as gone, and derives the sample without it."""
    exchange = Exchange(N)
    exchange.go_online(*FIRST[S:])
    exchange.run_until(exchange.has_aggregated(3), limit_s=60)
    assert {node for _, node, f in exchange.of(TrainingStarted) if f.ordinal == 1} == set(FIRST[S : 2 * S])
    assert exchange.of(RoundRestarted) == []


def test_if_all_members_of_the_first_sample_are_gone_the_watchdog_begins() -> None:
    exchange = Exchange(N)
    exchange.go_online(*range(N))
    exchange.run(2.0)
    for node in FIRST[:S]:
        exchange.crash(node)
    exchange.run_until(exchange.has_aggregated(3), limit_s=1200)
    assert [(fact.round, fact.held) for _, _, fact in exchange.of(RoundRestarted)] == [(1, 0)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_sessions_work(n: int) -> None:
    exchange = Exchange(n, sample_size=3)
    exchange.go_online(*range(n))
    exchange.run(200.0)
    assert exchange.rounds == list(range(2, 2 + len(exchange.rounds)))
    assert len(exchange.rounds) > 10
    assert not exchange.of(RoundRestarted)


def test_a_node_without_others_begins_alone() -> None:
    """The whole first round of n = 1, without a message to anybody else."""
    node = online_node(0, 1)
    assert node.handle(5.0, START) == [
        Report(SampleDerived(1, 1, FIRST_SAMPLE, (0,), 0)),
        Train(1, INITIAL),
        Report(TrainingStarted(1, 1)),
        Save(Durable(2, 1, INITIAL, ANY, 1)),
    ]
