"""Late models: nobody is interrupted, a change counts once, and an aggregator never waits for one."""

from __future__ import annotations

import pytest

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    Change,
    Collect,
    Effect,
    Received,
    TimerFired,
    Train,
    Trained,
    Undelivered,
)
from plexus.protocol.late import DECLINED, Late
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.participant import LATE
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS
from plexus.testing.exchange import sent
from tests.protocol.kit import aggregate_request, exchange_of, hash_order, online_node, train_request

N, K = 6, 5
CHANGE = Change("t", "m5")


def trains(**options: int) -> PlexusNode:
    """Node 0 trains round 5, of which the next is 6; everybody it pinged is there."""
    node = online_node(0, N, **{"late_rounds": 20, "sample_size": 3} | options)
    node.handle(1.0, Received(3, train_request(K, "m5", participants=3)))
    settle(node, 1.1)
    return node


def settle(node: PlexusNode, now: float, held: int = 0) -> list[Effect]:
    """All pings under way are answered, until nothing is asked any more; all effects. All who answer hold the
    model of round `held`."""
    effects: list[Effect] = []
    while node.sampler.exchanges:
        exchange, search = next(iter(node.sampler.exchanges.items()))
        for other in search.sample.waiting:
            known = node.membership.event
            effects += node.handle(now, Received(other, Pong(exchange, node.watchdog.k_seen, held, known)))
    return effects


def came_too_late(now: float = 60.0) -> tuple[PlexusNode, NodeId, LateModel]:
    """A node whose training ended when round 9 was under way; to whom it sent what."""
    node = trains()
    node.handle(50.0, Received(4, Ping(77, 9)))
    effects = node.handle(now, Trained(K, "t", samples=7))
    [(to, late)] = sent(effects + settle(node, now), LateModel)
    return node, to, late


def test_who_trains_finishes_first_and_then_trains_the_newest_it_was_asked_to() -> None:
    node = trains()
    for k in (8, 7):
        effects = node.handle(20.0 + k, Received(3, train_request(k, f"m{k}")))
        assert not [effect for effect in effects if isinstance(effect, Train)]
    assert (node.held_round, node.held_model) == (8, "m8"), "the newest model is held at once"
    effects = node.handle(60.0, Trained(K, "t"))
    assert Train(8, "m8") in effects


def test_without_late_models_a_newer_round_interrupts_as_in_the_paper() -> None:
    node = trains(late_rounds=0)
    assert Train(8, "m8") in node.handle(20.0, Received(3, train_request(8, "m8")))


@pytest.mark.parametrize(("late_rounds", "busy"), [(20, 1), (0, 0)])
def test_who_trains_says_that_it_is_busy(late_rounds: int, busy: int) -> None:
    node = trains(late_rounds=late_rounds)
    [(_, pong)] = sent(node.handle(2.0, Received(4, Ping(77, K))), Pong)
    assert pong.busy == busy


def test_busy_nodes_are_left_out_and_nobody_takes_their_place() -> None:
    order = hash_order(N, K)
    node = online_node(order[-1], N, late_rounds=20, sample_size=3, success_fraction=0.3)
    node.handle(1.0, Received(order[0], aggregate_request(K, participants=3)))
    node.handle(1.1, TimerFired(("aggregation", 0)))
    node.handle(1.2, Aggregated(K, "m5"))
    exchange = exchange_of(node, PARTICIPANTS)
    effects: list[Effect] = []
    for at, other in enumerate(order[:3]):
        pong = Pong(exchange, 0, 0, node.membership.event, busy=int(at == 1))
        effects += node.handle(1.3, Received(other, pong))
    asked = sent(effects, TrainRequest)
    assert {to for to, _ in asked} == {order[0], order[2]}
    assert {request.participants for _, request in asked} == {2}


def test_who_comes_too_late_sends_what_changed_for_the_round_after_the_next() -> None:
    node, to, late = came_too_late()
    sample = hash_order(N, 9 + 2)[:3]
    assert to == max(sample), "the best connected of that round's sample"
    assert late == LateModel(11, trained_in=K, ordinal=K, samples=7, model=CHANGE)
    assert not node.training.busy, "and is free for other work"


def test_pings_for_a_late_model_are_no_sign_of_progress() -> None:
    node = trains()
    node.handle(50.0, Received(4, Ping(77, 9)))
    pings = sent(node.handle(60.0, Trained(K, "t")), Ping)
    assert pings and {ping.round for _, ping in pings} == {9}


def test_what_was_used_is_settled_and_what_was_not_goes_to_another_once() -> None:
    node, to, late = came_too_late()
    node.handle(70.0, Received(to, Ack(K, used=0, late=late.round)))
    [(second, again)] = sent(settle(node, 70.0), LateModel)
    assert (second, again.round) != (to, late.round)
    node.handle(71.0, Received(to, Ack(K, used=0, late=late.round)))
    assert not node.sampler.is_searching(LATE), "an answer that comes twice is about the first try"
    node.handle(72.0, Received(second, Ack(K, used=1, late=again.round)))
    assert node.late.current is None


def test_without_an_answer_it_is_not_offered_again() -> None:
    node, _, _ = came_too_late()
    effects = node.handle(600.0, TimerFired(("late ack", 0)))
    assert not sent(effects, Ping) and node.late.current is None


def test_what_did_not_get_there_goes_to_another() -> None:
    node, to, late = came_too_late()
    node.handle(61.0, Undelivered(to, late))
    assert sent(settle(node, 61.0), LateModel)


def test_a_change_that_is_too_old_is_dropped() -> None:
    node = trains(late_rounds=3)
    node.handle(50.0, Received(4, Ping(77, K + 4)))
    effects = node.handle(60.0, Trained(K, "t"))
    assert not sent(effects + settle(node, 60.0), LateModel)


@pytest.mark.parametrize("used", [0, 1])
def test_a_model_that_its_aggregator_did_not_use_is_offered_as_a_change(used: int) -> None:
    node = trains()
    node.handle(60.0, Trained(K, "t"))
    settle(node, 60.0)
    aggregator = node.training.awaited
    assert aggregator is not None
    node.handle(70.0, Received(aggregator, Ack(K + 1, used)))
    assert node.sampler.is_searching(LATE) is (not used)


def test_new_work_does_not_forget_a_model_of_which_nobody_has_said_whether_it_was_used() -> None:
    node = trains()
    node.handle(60.0, Trained(K, "t"))
    settle(node, 60.0)
    aggregator = node.training.awaited
    assert aggregator is not None
    node.handle(61.0, Received(3, train_request(K + 4, "m9")))
    settle(node, 61.0)
    node.handle(62.0, Received(aggregator, Ack(K + 1, used=0)))
    assert node.sampler.is_searching(LATE)


def test_a_model_that_two_aggregators_may_have_is_not_offered() -> None:
    node = trains()
    node.handle(60.0, Trained(K, "t"))
    settle(node, 60.0)
    node.handle(600.0, TimerFired(("ack", 0)))
    effects = settle(node, 600.1)
    [(second, _)] = sent(effects, AggregateRequest)
    node.handle(601.0, Received(second, Ack(K + 1, used=0)))
    assert not node.sampler.is_searching(LATE)


def test_one_answer_settles_two_trainings_for_the_same_round() -> None:
    """Two rounds may come to the same number by different ways."""
    node = trains()
    node.handle(60.0, Trained(K, "t"))
    settle(node, 60.0)
    aggregator = node.training.awaited
    assert aggregator is not None
    node.late.offer_unless_used(K + 1, aggregator, Late(K - 1, K - 1, 1, CHANGE))
    node.handle(61.0, Received(aggregator, Ack(K + 1, used=1)))
    assert not node.training.busy and node.late.current is None


@pytest.mark.parametrize("signed_views", [True, False])
def test_who_never_uses_late_models_is_asked_after_others(signed_views: bool) -> None:
    node = trains(signed_views=signed_views)
    best = max(hash_order(N, 9 + 2)[:3])
    node.late._declined.update({best: DECLINED} if node.trust.is_wary else {})
    node.handle(50.0, Received(4, Ping(77, 9)))
    node.handle(51.0, Received(2, Ping(77, 9)))
    effects = node.handle(60.0, Trained(K, "t", samples=7))
    [(to, late)] = sent(effects + settle(node, 60.0, held=K + 1), LateModel)
    assert (to == best) is not signed_views
    node.handle(61.0, Received(to, Ack(K, used=0, late=late.round)))
    assert node.late._declined[to] == (1 if signed_views else 0)


# The aggregator's side


@pytest.mark.parametrize(("late_rounds", "waits"), [(20, True), (0, False)])
def test_the_fastest_does_not_go_on_alone_while_others_are_busy(late_rounds: int, waits: bool) -> None:
    node = online_node(0, N, late_rounds=late_rounds, sample_size=5, success_fraction=0.3)
    effects = node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=2)))
    assert any(isinstance(effect, Aggregate) for effect in effects) is not waits
    effects = node.handle(2.0, Received(2, aggregate_request(K, "t2", participants=2)))
    assert any(isinstance(effect, Aggregate) for effect in effects) is waits


def late_model(k: int = K, trained_in: int = K - 2, model: str = "change") -> LateModel:
    return LateModel(k, trained_in, trained_in, 4, model)


def test_an_aggregator_adds_changes_and_does_not_wait_for_them() -> None:
    node = online_node(0, N, late_rounds=20, sample_size=5)
    assert not node.handle(1.0, Received(5, late_model()))
    effects = node.handle(2.0, Received(1, aggregate_request(K, "t1", participants=1, samples=10)))
    assert Collect(K, "change", 4, is_change=True) in effects
    assert Aggregate(K, ("t1",), (10,), ("change",), (4,)) in effects
    assert (5, Ack(K - 2, used=1, late=K)) in sent(effects, Ack)


def test_a_change_that_comes_twice_is_answered_alike_and_used_once() -> None:
    node = online_node(0, N, late_rounds=20, sample_size=5)
    node.handle(1.0, Received(5, late_model()))
    node.handle(2.0, Received(1, aggregate_request(K, "t1", participants=1)))
    assert sent(node.handle(3.0, Received(5, late_model())), Ack) == [(5, Ack(K - 2, used=1, late=K))]
    effects = node.handle(4.0, Received(1, aggregate_request(K + 1, "t2", participants=1)))
    assert [effect.changes for effect in effects if isinstance(effect, Aggregate)] == [()]


def test_changes_for_a_round_that_others_aggregated_are_declined() -> None:
    node = online_node(0, N, late_rounds=20, sample_size=5)
    node.handle(1.0, Received(5, late_model()))
    effects = node.handle(2.0, Received(3, Ping(77, K + 1)))
    assert sent(effects, Ack) == [(5, Ack(K - 2, used=0, late=K))]


def test_changes_of_a_round_that_is_left_behind_are_declined() -> None:
    node = online_node(0, N, late_rounds=20, sample_size=5)
    node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=5)))
    node.handle(1.1, Received(5, late_model()))
    effects = node.handle(2.0, Received(2, aggregate_request(K + 2, "t2", participants=5)))
    assert (5, Ack(K - 2, used=0, late=K)) in sent(effects, Ack)


def test_where_late_models_do_not_count_they_are_declined() -> None:
    node = online_node(0, N)
    assert sent(node.handle(1.0, Received(5, late_model())), Ack) == [(5, Ack(K - 2, used=0, late=K))]


@pytest.mark.parametrize(("late_rounds", "waits"), [(20, True), (0, False)])
def test_of_so_few_nodes_nobody_is_left_behind(late_rounds: int, waits: bool) -> None:
    node = online_node(0, 2, late_rounds=late_rounds, success_fraction=0.5)
    effects = node.handle(1.0, Received(1, aggregate_request(K, "t1", participants=2)))
    assert any(isinstance(effect, Aggregate) for effect in effects) is not waits
    assert node.aggregation.collecting is waits
