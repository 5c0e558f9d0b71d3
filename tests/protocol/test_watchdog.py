"""The watchdog: rounds whose workers all vanished start again, soon, by few, and from the newest model."""

from __future__ import annotations

from typing import Any

import pytest

from plexus.protocol.api import (
    Aggregated,
    CancelTimer,
    Durable,
    Effect,
    Received,
    Report,
    Send,
    SetTimer,
    TimerFired,
)
from plexus.protocol.facts import AggregationCompleted, RoundRestarted, SampleDerived, TrainingStarted
from plexus.protocol.messages import (
    Ack,
    AggregateRequest,
    Joined,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
    ViewRequest,
)
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS, RESTART, step
from plexus.testing.exchange import sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    come_online,
    exchange_of,
    hash_order,
    online_node,
    pong,
    train_request,
)

N = 5
FIRED = TimerFired(("watchdog", 0))
WATCHDOG_S = 900.0
LATE = 1000.0
"""Later than any node that is not behind would wait."""
SHORT: dict[str, Any] = {
    "aggregation_timeout_s": 30.0,
    "ack_timeout_s": 45.0,
    "readvertise_s": 60.0,
    "watchdog_s": 90.0,
}


def holding(me: NodeId, k: int = 7, **options: Any) -> PlexusNode:
    """A node that holds the model of round k and has just come online."""
    return online_node(me, N, durable=Durable(3, k, f"m{k}", ordinal=k), **options)


def timer(effects: list[Effect]) -> float:
    """How long the watchdog will wait."""
    [delay_s] = [
        effect.delay_s for effect in effects if isinstance(effect, SetTimer) and effect.key == ("watchdog", 0)
    ]
    return delay_s


def answered(node: PlexusNode, src: NodeId, k: int, held: int, now: float = LATE) -> list[Effect]:
    """`src`, asked whether a restart is needed, knows of round k and holds that of round `held`."""
    return pong(node, src, exchange_of(node, RESTART), now, k, held)


ORDER = hash_order(N, 8)


def test_a_node_asks_the_candidates_of_the_next_round_one_by_one_and_claims_no_progress() -> None:
    node = holding(ORDER[-1])
    effects = node.handle(LATE, FIRED)
    assert effects[1:] == [Send((ORDER[0],), Ping(2, 7)), SetTimer(("ping", 2), 1.0)]
    effects = answered(node, ORDER[0], k=7, held=7)
    assert effects == [CancelTimer(("ping", 2)), Send((ORDER[1],), Ping(3, 7)), SetTimer(("ping", 3), 1.0)]


def test_if_nobody_knows_better_it_announces_the_round_and_starts_it_from_its_model() -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    answered(node, ORDER[0], k=7, held=7)
    effects = answered(node, ORDER[1], k=3, held=2)
    sample = tuple(ORDER[:2])
    assert effects == [
        CancelTimer(("ping", 3)),
        Report(SampleDerived(8, 8, RESTART, sample, 0)),
        Report(RoundRestarted(8, 8, held=7)),
        Send(sample, Ping(0, 8)),
        Send(sample, TrainRequest(8, step(N), 8, 2, node.membership.view.snapshot(), "m7")),
    ]


def test_the_restarting_node_may_be_in_the_sample_itself() -> None:
    node = holding(ORDER[1])
    node.handle(LATE, FIRED)
    effects = answered(node, ORDER[0], k=7, held=7)
    assert sent(effects, Ping) == [(ORDER[0], Ping(0, 8))]
    assert [to for to, _ in sent(effects, TrainRequest)] == ORDER[:2]


def test_messages_for_the_restarted_round_are_stale_to_who_restarted_it() -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    answered(node, ORDER[0], k=7, held=7)
    answered(node, ORDER[1], k=7, held=7)
    assert node.aggregation.k_agg == 8


def test_an_aggregation_that_got_stuck_is_released_by_a_restart() -> None:
    """Its participants are told to stop waiting for it."""
    node = holding(ORDER[-1], success_fraction=1.0)
    node.handle(1.0, Received(ORDER[2], aggregate_request(8)))
    node.handle(LATE, FIRED)
    order = hash_order(N, 9)
    others = [candidate for candidate in order if candidate != node.me][:2]
    effects = answered(node, others[0], k=8, held=7) + answered(node, others[1], k=8, held=7)
    assert sent(effects, Ack) == [(ORDER[2], Ack(8, used=0))]
    assert CancelTimer(("aggregation", 0)) in effects
    assert not node.aggregation.collecting
    assert RoundRestarted(9, 8, held=7) in [e.fact for e in effects if isinstance(e, Report)]


@pytest.mark.parametrize("k", [8, 30])
def test_it_stops_at_the_first_that_knows_a_newer_round(k: int) -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    effects = answered(node, ORDER[0], k=k, held=3)
    assert effects[0] == CancelTimer(("ping", 2))
    assert sent(effects, Ping) == []
    assert node.watchdog.k_seen == k


@pytest.mark.parametrize("worked", [False, True])
def test_who_had_no_work_yet_and_finds_others_ahead_tells_some_that_it_is_there(worked: bool) -> None:
    """Two that each believe the other gone may have nobody in common who gets to send a model."""
    node = holding(ORDER[-1])
    if worked:
        node.handle(1.0, Received(ORDER[0], train_request(8, "m8")))
    node.handle(LATE, FIRED)
    told = sent(answered(node, ORDER[0], k=30, held=29), Joined)
    assert len(told) == (0 if worked else node.parameters.readvertise_to)


@pytest.mark.parametrize("k", [3, 7])
def test_a_restart_is_left_to_who_holds_a_newer_model_but_not_for_ever(k: int) -> None:
    """Who came back a moment ago waits for its own watchdog, and may vanish before that."""
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    while_s = WATCHDOG_S / 8
    assert answered(node, ORDER[0], k=k, held=8) == [
        CancelTimer(("ping", 2)),
        SetTimer(("watchdog", 0), while_s),
    ]
    now = LATE + while_s
    node.handle(now, FIRED)
    answered(node, ORDER[0], k=k, held=8, now=now)
    effects = answered(node, ORDER[1], k=7, held=7, now=now)
    assert RoundRestarted(8, 8, held=7) in [e.fact for e in effects if isinstance(e, Report)]


def test_who_is_far_behind_leaves_restarts_to_others() -> None:
    node = holding(ORDER[-1], k=7)
    far = 7 + 53 * step(node.view.online_count())
    node.handle(1.0, Received(1, Ping(9, far)))
    now = 3 * LATE
    [(asked, ping)] = sent(node.handle(now, FIRED), Ping)
    effects = answered(node, asked, k=far, held=far - 1, now=now)
    assert effects == [CancelTimer(("ping", ping.exchange))]
    assert round(timer(node.handle(now, FIRED)) / WATCHDOG_S) == 2, "and is patient"


def test_who_left_a_restart_to_others_and_sees_progress_is_polite_again() -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    answered(node, ORDER[0], k=7, held=8)
    node.handle(LATE + 1, Received(ORDER[0], Ping(5, 8)))
    assert sent(node.handle(LATE + 200, FIRED), Ping) == [], "that was progress"
    now = 2 * LATE + 1
    [(asked, _)] = sent(node.handle(now, FIRED), Ping)
    effects = answered(node, asked, k=8, held=8, now=now)
    assert timer(effects) == WATCHDOG_S / 8


def test_progress_that_comes_while_it_asks_makes_the_restart_unnecessary() -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    answered(node, ORDER[0], k=7, held=7)
    node.handle(LATE, Received(ORDER[2], Ping(4, 8)))
    effects = answered(node, ORDER[1], k=7, held=7)
    assert effects == [CancelTimer(("ping", 3)), Report(SampleDerived(8, 8, RESTART, tuple(ORDER[:2]), 0))]


@pytest.mark.parametrize(
    "work", [train_request(8, "m8"), aggregate_request(8)], ids=lambda work: type(work).__name__
)
def test_a_node_that_is_given_work_stops_asking(work: TrainRequest | AggregateRequest) -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    asking = exchange_of(node, RESTART)
    assert CancelTimer(("ping", asking)) in node.handle(LATE, Received(ORDER[2], work))


def test_who_noticed_progress_waits_for_the_rest_of_its_time() -> None:
    node = holding(0)
    node.handle(500.0, Received(1, Ping(1, 8)))
    effects = node.handle(905.0, FIRED)
    assert sent(effects, Ping) == []
    assert WATCHDOG_S <= 905.0 - 500.0 + timer(effects) < WATCHDOG_S + 20.0


def test_own_work_is_progress_even_in_a_round_already_heard_of() -> None:
    """Pings announce a round, its model takes a while longer."""
    node = holding(ORDER[-1])
    node.handle(10.0, Received(1, Ping(1, 8)))
    node.handle(800.0, Received(1, train_request(8, "m8")))
    assert sent(node.handle(LATE, FIRED), Ping) == []


def test_a_ping_for_a_round_already_known_is_no_progress() -> None:
    node = holding(ORDER[-1])
    node.handle(899.0, Received(1, Ping(1, 7)))
    assert sent(node.handle(LATE, FIRED), Ping)


def test_the_older_its_model_the_longer_a_node_waits() -> None:
    """So the one with the newest model is the first to restart."""
    waits = []
    for behind in (0, 2, 10, 50, 60):
        node = holding(0, k=1)
        node.handle(0.0, Received(1, Ping(1, 1 + behind * step(node.view.online_count()))))
        effects = node.handle(0.0, FIRED)
        waits.append(timer(effects))
    assert waits == sorted(waits)
    assert [int(wait - WATCHDOG_S) // 10 for wait in waits] == [0, 2, 10, 30, 30]


def test_finding_others_ahead_makes_patient_and_work_makes_watchful_again() -> None:
    node, now = holding(ORDER[-1]), 0.0
    waits = []
    for k in range(8, 13):
        now += 20_000.0
        node.handle(now, FIRED)
        [asked] = node.sampler.exchanges[exchange_of(node, RESTART)].sample.waiting
        answered(node, asked, k=k, held=7, now=now)
        waits.append(timer(node.handle(now, FIRED)))
    assert [round(wait / WATCHDOG_S) for wait in waits] == [2, 4, 8, 8, 8]
    node.handle(now, Received(1, train_request(20, "m20")))
    assert round(timer(node.handle(now, FIRED)) / WATCHDOG_S) == 1


def test_coming_online_counts_as_progress_and_makes_watchful() -> None:
    node = holding(ORDER[-1])
    node.handle(LATE, FIRED)
    answered(node, ORDER[0], k=8, held=8)
    assert round(timer(come_online(node, LATE)) / WATCHDOG_S) == 1
    effects = node.handle(LATE + 500.0, FIRED)
    assert sent(effects, Ping) == []
    assert WATCHDOG_S <= 500.0 + timer(effects) < WATCHDOG_S + 20.0


def test_a_push_that_still_looks_for_participants_gives_way_to_a_restart() -> None:
    """Hundreds of silent candidates, two seconds each, may take longer than the watchdog waits."""
    node = holding(ORDER[-1])
    node.handle(1.0, Received(ORDER[2], aggregate_request(8, participants=1)))
    node.handle(1.0, Aggregated(8, "m8"))
    pushing = exchange_of(node, PARTICIPANTS)
    node.handle(LATE, FIRED)
    others = [candidate for candidate in hash_order(N, 9) if candidate != node.me][:2]
    effects = answered(node, others[0], k=8, held=7) + answered(node, others[1], k=8, held=7)
    assert CancelTimer(("ping", pushing)) in effects
    assert {push.round for _, push in sent(effects, TrainRequest)} == {9}


def test_the_watchdog_is_always_set_again() -> None:
    node = holding(ORDER[-1])
    for now in (100.0, LATE, LATE + 1, 5000.0):
        assert timer(node.handle(now, FIRED)) > 0


def test_asking_many_silent_nodes_is_not_begun_anew_each_time_the_watchdog_fires() -> None:
    """59 of 60 are gone; asking them takes 118 s, the watchdog waits 90."""
    exchange = Exchange(60, sample_size=3, **SHORT)
    exchange.go_online(0)
    exchange.run_until(exchange.has_aggregated(3), limit_s=1000)
    assert len(exchange.of(RoundRestarted)) == 1


def test_many_nodes_whose_watchdogs_fire_together_start_few_rounds() -> None:
    """The whole first sample never comes; 95 nodes have waited equally long for it."""
    n, s = 100, 5
    exchange = Exchange(n, sample_size=s, advertise_size=5)
    exchange.go_online(*hash_order(n, 1)[s:])
    exchange.run(1200.0)
    restarts = exchange.of(RoundRestarted)
    assert 1 <= len(restarts) <= 4
    assert {fact.round for _, _, fact in restarts} == {1}
    started = [fact.round for _, _, fact in exchange.of(TrainingStarted)]
    assert started.count(1) == s, "each participant trains once, however many ask it to"
    assert len(exchange.rounds) == len(set(exchange.rounds)) > 5


@pytest.mark.parametrize("moment_s", [7.0, 14.0, 16.2, 17.3, 50.0])
def test_when_all_who_work_on_a_round_crash_at_once_others_go_on_from_the_newest_model(
    moment_s: float,
) -> None:
    exchange = Exchange(30, sample_size=3)
    exchange.go_online(*range(30))
    exchange.run(moment_s)
    newest = max(fact.ordinal for _, _, fact in exchange.of(TrainingStarted))
    working = {n for _, n, fact in exchange.of(TrainingStarted) if fact.ordinal >= newest - 1}
    working |= {n for _, n, fact in exchange.of(AggregationCompleted) if fact.ordinal >= newest - 1}
    for node in sorted(working):
        exchange.crash(node)
    survivors = [exchange.nodes[node].held_round for node in exchange.online]
    exchange.run_until(exchange.has_aggregated(newest + 4), limit_s=moment_s + 1500)
    restarts = exchange.of(RoundRestarted)
    assert 1 <= len(restarts) <= 3
    # Who knew of little may start too, but from a number that nobody heeds who knows more.
    prevailing = max((fact for _, _, fact in restarts), key=lambda fact: fact.round)
    assert prevailing.held == max(survivors)


def test_a_quiet_session_never_restarts_a_round() -> None:
    """Nodes that are in no sample for long ask around, and hear that all is well."""
    n = 150
    exchange = Exchange(n, sample_size=3, checked=False, advertise_size=10)
    exchange.go_online(*range(n))
    exchange.run(4000.0)
    assert exchange.of(RoundRestarted) == []
    asked = [node for node in exchange.nodes if node.watchdog._patience > 1]
    assert asked, "some did ask"


def test_one_who_asks_alone_in_the_world_restarts_alone() -> None:
    node = online_node(0, 1)
    effects = node.handle(LATE, FIRED)
    assert sent(effects, TrainRequest)[0][0] == 0
    assert RoundRestarted(1, 1, 0) in [e.fact for e in effects if isinstance(e, Report)]


def test_who_was_never_asked_to_work_among_few_tells_others_of_itself() -> None:
    """Though it sees progress: whoever passes that on may not get to say that this node is there."""
    node = online_node(0, N, sample_size=3)
    node.handle(890.0, Received(1, Ping(7, 4)))
    assert sent(node.handle(LATE, FIRED), Joined)
    node.handle(LATE + 1, Received(1, train_request(5)))
    node.handle(LATE + 2, Received(1, Ping(7, 40)))
    assert not sent(node.handle(LATE + 3, FIRED), Joined)


def test_who_is_left_out_asks_for_a_view_of_who_is_ahead() -> None:
    node = holding(0)
    asked = sent(node.handle(2 * LATE, FIRED), Ping)
    to, ping = asked[0]
    effects = node.handle(2 * LATE + 1, Received(to, Pong(ping.exchange, 100, 0, node.membership.event)))
    assert sent(effects, ViewRequest) == [(to, ViewRequest())]
