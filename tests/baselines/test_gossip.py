"""Gossip Learning's node: sends every period, merges by age, trains, lets the newest model wait."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import ANY

import pytest

from plexus.protocol import wire
from plexus.protocol.api import (
    Aggregated,
    Durable,
    Event,
    Merge,
    Received,
    Save,
    TimerFired,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.baselines.gossip import MAX_AGE, GossipNode, GossipParameters
from plexus.protocol.facts import ModelUpdated
from plexus.protocol.messages import GossipModel, Joined, Left, Ping, Pong
from plexus.protocol.view import JOINED, LEFT, View, event_number
from plexus.testing import reported
from tests.baselines.kit import Handle, effects_of, everybody_online, only, sent, timers

SEND = TimerFired(("send", 0))
NOBODY = View.of(0).snapshot()


def make(
    nodes: int = 5, durable: Durable | None = None, view: View | None = None, seed: int = 1, **as_said: bool
) -> GossipNode:
    view = view or everybody_online(nodes)
    world: dict[str, Any] = {"me": 0, "view": view, "bandwidth_bytes_per_s": 100, "rng": Random(seed)}
    return GossipNode(GossipParameters(**as_said), "m0", durable, **world)


@pytest.fixture
def handle() -> Handle:
    handle = effects_of(make())
    handle(WentOnline())
    return handle


def model(age: int, name: str, src: int = 1) -> Received:
    return Received(src, GossipModel(age, NOBODY, name))


def test_it_advertises_itself_and_waits_for_its_own_moment_in_the_period() -> None:
    delays_s = set()
    for seed in range(5):
        effects = effects_of(make(seed=seed))(WentOnline())
        assert [set(to) for to, _ in sent(effects, Joined)] == [{1, 2, 3, 4}]
        delays_s.add(timers(effects)["send", 0])
    assert len(delays_s) == 5
    assert all(0 <= delay_s < 60 for delay_s in delays_s)


def test_every_period_it_sends_its_model_to_a_peer_that_answers(handle: Handle) -> None:
    effects = handle(SEND)
    assert timers(effects)["send", 0] == 60.0
    ((peer,), ping) = sent(effects, Ping)[0]
    effects = handle(Received(peer, Pong(ping.exchange, 0, 0, 0)))
    ((to, body),) = sent(effects, GossipModel)
    assert (to, body.age, body.model) == ((peer,), 0, "m0")
    assert body.view.known == 5


def test_a_silent_peer_is_replaced_by_another_until_nobody_is_left(handle: Handle) -> None:
    asked = []
    effects = handle(SEND)
    for _ in range(4):
        ((peer,), ping) = sent(effects, Ping)[0]
        asked.append(peer)
        effects = handle(TimerFired(("ping", ping.exchange)))
        assert sent(effects, GossipModel) == []
    assert sorted(asked) == [1, 2, 3, 4]
    assert sent(effects, Ping) == []


def test_whom_it_believes_offline_it_does_not_ask() -> None:
    handle = effects_of(make())
    handle(WentOnline())
    for gone in (1, 2, 4):
        handle(Received(gone, Left(2)))
    assert sent(handle(SEND), Ping)[0][0] == (3,)


def test_of_many_believed_online_it_asks_random_ones() -> None:
    handle = effects_of(make(nodes=500))
    handle(WentOnline())
    asked = [sent(handle(SEND), Ping)[0][0] for _ in range(20)]
    assert len(set(asked)) > 15
    assert (0,) not in asked


def test_a_node_that_knows_nobody_sends_nothing() -> None:
    handle = effects_of(make(nodes=1))
    handle(WentOnline())
    assert only(handle(SEND), Merge) == []
    assert sent(handle(SEND), Ping) == []


@pytest.mark.parametrize(
    ("own_age", "other_age", "weights", "age"),
    [(0, 0, (1, 1), 0), (0, 7, (0, 7), 7), (9, 3, (9, 3), 9), (4, 4, (4, 4), 4)],
)
def test_models_are_merged_by_age_then_trained(
    own_age: int, other_age: int, weights: tuple[int, int], age: int
) -> None:
    handle = effects_of(make(durable=Durable(1, own_age, "own")))
    handle(WentOnline())
    effects = handle(model(other_age, "other"))
    assert only(effects, Merge) == [Merge(age, ("own", "other"), weights)]
    assert only(handle(Aggregated(age, "both")), Train) == [Train(age + 1, "both")]
    effects = handle(Trained(age + 1, "better"))
    assert reported(effects, ModelUpdated) == [ModelUpdated(age + 1, "better", merged=2)]
    assert only(effects, Save) == [Save(Durable(2, age + 1, "better", ANY, age + 1))]
    ((peer,), ping) = sent(handle(SEND), Ping)[0]
    effects = handle(Received(peer, Pong(ping.exchange, 0, 0, 0)))
    body = sent(effects, GossipModel)[0][1]
    assert (body.age, body.model) == (age + 1, "better")


@pytest.mark.parametrize("claimed", [MAX_AGE - 1, MAX_AGE])
def test_an_age_that_somebody_made_up_is_not_grown_out_of_what_messages_say(claimed: int) -> None:
    assert wire.LIMITS["age"] == MAX_AGE
    handle = effects_of(make(durable=Durable(1, 9, "own")))
    handle(WentOnline())
    for weight in (9, MAX_AGE, MAX_AGE):
        effects = handle(model(claimed, "other"))
        assert only(effects, Merge)[0].weights == (weight, claimed)
        [training] = only(handle(Aggregated(MAX_AGE - 1, "both")), Train)
        assert training == Train(MAX_AGE, "both")
        handle(Trained(training.round, "own"))
    ((peer,), ping) = sent(handle(SEND), Ping)[0]
    [(_, body)] = sent(handle(Received(peer, Pong(ping.exchange, 0, 0, 0))), GossipModel)
    assert body.age == MAX_AGE
    assert make(durable=Durable(1, MAX_AGE + 1, "of a version before")).age == MAX_AGE


def test_models_that_arrive_during_merge_and_training_wait_and_the_newest_is_taken(handle: Handle) -> None:
    handle(model(1, "first"))
    assert only(handle(model(2, "second")), Merge) == []
    handle(Aggregated(1, "both"))
    assert only(handle(model(5, "third")), Merge) == []
    assert only(handle(model(3, "fourth")), Merge) == []
    effects = handle(Trained(2, "t2"))
    assert only(effects, Merge) == [Merge(3, ("t2", "fourth"), (2, 3))]
    handle(Aggregated(3, "all"))
    assert only(handle(Trained(4, "t4")), Merge) == [], "nothing is waiting any more"


def test_overlapping_a_model_is_merged_at_once_with_what_is_being_trained_and_that_training_is_lost() -> None:
    handle = effects_of(make(overlapping=True))
    handle(WentOnline())
    handle(model(1, "first"))
    handle(Aggregated(1, "both"))
    assert only(handle(model(3, "second")), Merge) == [Merge(3, ("both", "second"), (1, 3))]
    assert handle(Trained(2, "too late")) == []
    assert only(handle(Aggregated(3, "all")), Train) == [Train(4, "all")]
    assert reported(handle(Trained(4, "t4")), ModelUpdated) == [ModelUpdated(4, "t4", merged=2)]


def test_a_node_can_be_judged_by_what_it_merged_before_that_is_trained() -> None:
    handle = effects_of(make(judge_merged=True))
    handle(WentOnline())
    handle(model(1, "first"))
    assert reported(handle(Aggregated(1, "both")), ModelUpdated) == [ModelUpdated(1, "both", merged=2)]
    assert reported(handle(Trained(2, "t2")), ModelUpdated) == [ModelUpdated(2, "t2", merged=2)]


def test_a_model_brings_its_senders_view_even_if_it_has_to_wait() -> None:
    node = make(view=View.of(5, [(0, 100)]))
    handle = effects_of(node)
    handle(WentOnline())
    known = View.of(5, [(3, 700)])
    handle(Received(3, GossipModel(1, known.snapshot(), "x")))
    known.learn(4, event_number(1, JOINED), 800)
    handle(Received(3, GossipModel(1, known.snapshot(), "y")))
    assert node.membership.view.actives() == [0, 3, 4]


def test_who_finds_itself_misrepresented_says_so() -> None:
    node = make()
    handle = effects_of(node)
    handle(WentOnline())
    known = View.of(5)
    known.learn(0, event_number(9, LEFT))
    effects = handle(Received(3, GossipModel(1, known.snapshot(), "x")))
    assert [body for _, body in sent(effects, Joined)] == [Joined(10, 100)]
    assert only(effects, Save) == [Save(Durable(10, 0, "m0", ANY))]
    effects = handle(Received(3, Pong(0, 0, 0, event=event_number(12, JOINED))))
    assert [body for _, body in sent(effects, Joined)] == [Joined(13, 100)]


def test_who_answers_with_an_older_event_is_told_the_newest(handle: Handle) -> None:
    effects = handle(Received(3, Pong(0, 0, 0, event=event_number(1, JOINED))))
    assert [to for to, _ in sent(effects, Joined)] == [(3,)]


def test_leaving_loses_what_was_under_way_and_keeps_the_model(handle: Handle) -> None:
    handle(model(1, "other"))
    handle(Aggregated(1, "both"))
    handle(model(8, "waiting"))
    effects = handle(WentOffline())
    assert [body for _, body in sent(effects, Left)] == [Left(3)]
    handle(WentOnline())
    assert handle(Trained(2, "late")) == []
    assert only(handle(model(1, "new")), Merge) == [Merge(1, ("both", "new"), (1, 1))]


@pytest.mark.parametrize("event", [Trained(3, "t"), Aggregated(3, "a")])
def test_results_that_nobody_asked_for_are_ignored(handle: Handle, event: Event) -> None:
    assert handle(event) == []


def test_pings_are_answered_and_show_that_somebody_knows_the_node() -> None:
    node = make()
    handle = effects_of(node)
    handle(WentOnline())
    assert sent(handle(Received(2, Ping(7, 3))), Pong) == [
        ((2,), Pong(7, 3, 0, event=event_number(1, JOINED)))
    ]
    assert node.membership.contacted
    assert handle(TimerFired(("readvertise", 0))) == []


def test_a_period_that_makes_no_sense_is_refused() -> None:
    for field in ("period_s", "ping_timeout_s", "readvertise_s", "advertise_size"):
        with pytest.raises(ValueError, match=f"{field} is 0, but must be"):
            GossipParameters(**{field: 0})
