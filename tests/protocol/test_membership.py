"""Joining and leaving: the counter, the advertisements, and what becomes of a lost disk."""

from __future__ import annotations

from random import Random
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.api import (
    Durable,
    Expelled,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.facts import Readvertised, SampleDerived
from plexus.protocol.membership import draw
from plexus.protocol.messages import AggregateRequest, Joined, Left, Ping, Pong, TrainRequest
from plexus.protocol.view import JOINED, MAX_COUNTER, Snapshot, counter_of, event_number
from plexus.testing.exchange import INITIAL, sent
from tests.protocol.kit import (
    NOTHING,
    Exchange,
    aggregate_request,
    come_online,
    make_node,
    online_node,
    pong,
    snapshot_of,
    train_request,
    without,
)

READVERTISE_S = 600.0


@given(st.integers(0, 2**32), st.integers(0, 3000), st.data())
def test_numbers_are_drawn_as_python_draws_them(seed: int, among: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, min(among, 200)))
    rng, oracle = Random(seed), Random(seed)
    assert draw(rng, among, count) == oracle.sample(range(among), count)
    assert rng.random() == oracle.random(), "as many as it draws"


def model_message(kind: type, view: Snapshot) -> TrainRequest | AggregateRequest:
    return train_request(5, view=view) if kind is TrainRequest else aggregate_request(5, view=view)


def test_going_online_raises_the_counter_saves_it_asks_and_only_then_advertises() -> None:
    node = make_node(1, 4, known=[])
    watchdog, save, readvertise, ask, timeout = node.handle(0.0, WentOnline())
    assert isinstance(watchdog, SetTimer)
    assert watchdog.key == ("watchdog", 0)
    assert save == Save(Durable(1, 0, INITIAL, ANY))
    assert readvertise == SetTimer(("readvertise", 0), READVERTISE_S)
    assert isinstance(ask, Send)
    assert (sorted(ask.to), ask.body) == ([0, 2, 3], Ping(1, 0))
    assert timeout == SetTimer(("ping", 1), 1.0)
    effects = [effect for other in (0, 2, 3) for effect in pong(node, other, 1, 0.1)]
    _, send, start = effects[-3:]
    assert isinstance(send, Send)
    assert sorted(send.to) == [0, 2, 3]
    assert send.body == Joined(1, 200)
    assert start == SetTimer(("start", 0), 5.0)
    assert node.membership.view.event_of(1) == event_number(1, JOINED)


def test_going_offline_raises_the_counter_saves_it_and_says_goodbye() -> None:
    node = online_node(1, 4)
    effects = node.handle(9.0, WentOffline())
    assert effects[0] == Save(Durable(3, 0, INITIAL, ANY))
    assert dict(sent(effects)) == dict.fromkeys([0, 2, 3], Left(3))
    assert not node.membership.view.is_online(1)


def test_each_coming_and_going_has_a_number_of_its_own() -> None:
    node = make_node(0, 3)
    numbers = []
    for event in (WentOnline(), WentOffline(), WentOnline(), WentOnline(), WentOffline()):
        node.handle(0.0, event)
        numbers.append(node.membership.counter)
    assert numbers == [2, 3, 4, 5, 6], "the second online in a row is after a crash"


def test_the_counter_goes_on_from_what_was_saved() -> None:
    node = make_node(0, 3, durable=Durable(counter=7, round=4, model="m4"))
    effects = come_online(node)
    assert [effect.state for effect in effects if isinstance(effect, Save)] == [Durable(8, 4, "m4", ANY)]
    assert {joined.counter for _, joined in sent(effects, Joined)} == {8}


@pytest.mark.parametrize("kind", [TrainRequest, AggregateRequest])
def test_a_node_that_lost_its_disk_gets_above_every_number_known_of_it(kind: type) -> None:
    node = online_node(0, 3, known=[1, 2])
    assert node.membership.counter == 1
    view = snapshot_of(3, (0, 40, True))
    effects = node.handle(3.0, Received(1, model_message(kind, view)))
    assert effects[0] == Save(Durable(41, 0, INITIAL, ANY))
    assert dict(sent(effects, Joined)) == dict.fromkeys([1, 2], Joined(41, 100))
    assert SetTimer(("readvertise", 0), READVERTISE_S) in effects
    assert node.membership.view.event_of(0) == event_number(41, JOINED)


def test_an_answer_is_enough_to_learn_that_the_disk_was_lost() -> None:
    node = online_node(0, 3, known=[1, 2])
    effects = node.handle(3.0, Received(1, Pong(0, 5, 5, event_number(40, JOINED))))
    assert effects[0] == Save(Durable(41, 0, INITIAL, ANY))
    assert dict(sent(effects, Joined)) == dict.fromkeys([1, 2], Joined(41, 100))


def test_a_node_that_left_and_lost_its_disk_is_not_ignored_for_ever() -> None:
    """Its joined messages count from 1 again and are older than its goodbye, so nobody heeds them."""
    exchange = Exchange(5, sample_size=2)
    exchange.go_online(*range(5))
    exchange.run(20.0)
    exchange.leave(0)
    exchange.nodes[0] = make_node(0, 5)  # its disk is new
    exchange.run(40.0)
    exchange.go_online(0)
    exchange.run(1000.0)
    counter = exchange.nodes[0].membership.counter
    assert counter > 3
    assert all(counter_of(node.membership.view.event_of(0)) == counter for node in exchange.nodes)
    assert any(to == 0 and isinstance(m, TrainRequest) for _, _, to, m in exchange.messages[-200:])


def test_what_others_know_of_a_node_and_it_knows_itself_is_no_news() -> None:
    node = online_node(0, 3)
    view = snapshot_of(3, (0, 2, True), (0, 1, False))
    assert sent(node.handle(3.0, Received(1, train_request(5, view=view))), Joined) == []


def test_the_largest_number_is_kept_rather_than_exceeded() -> None:
    node = online_node(0, 3)
    view = snapshot_of(3, (0, MAX_COUNTER, False))
    node.handle(3.0, Received(1, train_request(5, view=view)))
    assert node.membership.counter == MAX_COUNTER
    assert node.membership.view.is_online(0)
    come_online(node, 4.0)
    node.handle(5.0, Received(1, train_request(6, view=view)))
    assert node.membership.counter == MAX_COUNTER


def test_a_joined_message_counts_at_once_if_it_is_newer() -> None:
    node = online_node(0, 3, known=[1])
    assert node.handle(1.0, Received(2, Joined(4, 555))) == []
    assert node.membership.view.is_online(2)
    assert node.membership.view.bandwidth_of(2) == 555
    node.handle(1.0, Received(2, Joined(3, 111)))
    assert node.membership.view.bandwidth_of(2) == 555, "an old one changes nothing"


def test_a_left_message_counts_at_once_if_it_is_newer() -> None:
    node = online_node(0, 3)
    node.handle(1.0, Received(2, Left(0)))
    assert node.membership.view.is_online(2)
    assert node.handle(1.0, Received(2, Left(2))) == []
    assert not node.membership.view.is_online(2)
    node.handle(1.0, Received(2, Joined(1, 300)))
    assert not node.membership.view.is_online(2), "a join that its own goodbye overtook"


def test_p_is_ten_samples_by_default_drawn_from_those_believed_online() -> None:
    node = make_node(0, 80, known=range(60), sample_size=2)
    *_, told = [e.to for e in come_online(node) if isinstance(e, Send)]
    assert len(told) == len(set(told)) == 20
    assert set(told) <= set(range(1, 60))


def test_too_few_believed_online_are_filled_up_with_others_which_may_be_back() -> None:
    node = make_node(0, 40, known=range(5), advertise_size=10)
    *_, told = [e.to for e in come_online(node) if isinstance(e, Send)]
    assert set(told[:4]) == {1, 2, 3, 4}
    assert len(told) == len(set(told)) == 10
    assert 0 not in told


def test_a_node_that_is_alone_tells_nobody() -> None:
    node = make_node(0, 1)
    assert sent(come_online(node)) == []
    assert sent(node.handle(9.0, TimerFired(("readvertise", 0)))) == []
    assert sent(node.handle(10.0, WentOffline())) == []


def test_who_was_not_contacted_advertises_again_and_asks_for_an_answer() -> None:
    node = online_node(0, 4)
    effects = node.handle(READVERTISE_S, TimerFired(("readvertise", 0)))
    told, asked, timer, report = effects
    assert isinstance(told, Send)
    assert isinstance(asked, Send)
    assert told.body == Joined(2, 100), "the same event, so the same number"
    assert asked.body == Ping(0, 0)
    assert told.to == asked.to
    assert len(told.to) == 2, "a sample's worth of nodes"
    assert timer == SetTimer(("readvertise", 0), READVERTISE_S)
    assert report == Report(Readvertised(1))


def test_every_second_time_it_turns_to_anybody() -> None:
    """All whom the node believes online may be gone."""
    node = online_node(0, 40, known=[0, 1, 2])
    told = [
        {to for to, _ in sent(node.handle(at, TimerFired(("readvertise", 0))), Joined)}
        for at in (600.0, 1200.0, 1800.0, 2400.0)
    ]
    assert told[0] == told[2] == {1, 2}
    assert told[1] != {1, 2} != told[3]


def test_attempts_are_counted_from_the_last_join() -> None:
    node = online_node(0, 4)
    node.handle(600.0, TimerFired(("readvertise", 0)))
    come_online(node, 700.0)
    effects = node.handle(1300.0, TimerFired(("readvertise", 0)))
    assert effects[-1] == Report(Readvertised(1))


@pytest.mark.parametrize(
    "contact",
    [Ping(7, 3), Pong(0, 3, 2, event_number(2, JOINED)), train_request(5), aggregate_request(5)],
    ids=lambda contact: type(contact).__name__,
)
def test_who_was_contacted_or_answered_does_not_advertise_again(contact: object) -> None:
    node = online_node(0, 4)
    node.handle(1.0, Received(1, contact))
    assert node.handle(READVERTISE_S, TimerFired(("readvertise", 0))) == []


def test_an_answer_that_knows_only_an_older_event_is_no_proof_that_the_join_was_heard() -> None:
    node = online_node(0, 4)
    node.handle(1.0, Received(1, Pong(0, 3, 2, event_number(1, JOINED))))
    assert sent(node.handle(READVERTISE_S, TimerFired(("readvertise", 0))), Joined)


def test_who_answers_with_an_older_event_is_told_the_newest() -> None:
    """Otherwise a node whose join nobody passes on would be left out for as long as others ping it."""
    node = online_node(0, 4)
    effects = node.handle(1.0, Received(1, Pong(0, 3, 2, event_number(1, JOINED))))
    assert sent(effects, Joined) == [(1, Joined(2, 100))]
    assert sent(node.handle(2.0, Received(1, Pong(0, 3, 2, event_number(2, JOINED)))), Joined) == []


@pytest.mark.parametrize("kind", [TrainRequest, AggregateRequest])
@pytest.mark.parametrize(("known", "told"), [(1, True), (2, False)])
def test_who_sends_a_view_with_an_older_event_is_told_the_newest(kind: type, known: int, told: bool) -> None:
    node = online_node(0, 4)
    effects = node.handle(1.0, Received(1, model_message(kind, snapshot_of(4, (0, known, True)))))
    assert sent(effects, Joined) == ([(1, Joined(2, 100))] if told else [])


@pytest.mark.parametrize("kind", [TrainRequest, AggregateRequest])
def test_a_message_of_the_node_to_itself_is_no_contact(kind: type) -> None:
    """Nobody heard it join, so it works alone, as its own aggregator: it must go on telling others."""
    node = online_node(0, 4)
    node.handle(1.0, Received(0, model_message(kind, NOTHING)))
    assert sent(node.handle(READVERTISE_S, TimerFired(("readvertise", 0))), Joined)


def test_contacts_before_the_last_join_do_not_count() -> None:
    node = online_node(0, 4)
    node.handle(1.0, Received(1, Ping(7, 3)))
    come_online(node, 2.0)
    assert without(node.handle(602.0, TimerFired(("readvertise", 0))), Report, SetTimer) != []


@pytest.mark.parametrize("raise_again", ["joined", "view", "pong"])
def test_whoever_is_expelled_is_offline_whatever_is_said_of_it(raise_again: str) -> None:
    node = online_node(0, 4)
    node.handle(1.0, Expelled(2))
    assert not node.membership.view.is_online(2)
    if raise_again == "joined":
        node.handle(2.0, Received(2, Joined(MAX_COUNTER, 900)))
    elif raise_again == "view":
        newest = snapshot_of(4, (2, MAX_COUNTER, True))
        node.handle(2.0, Received(1, train_request(5, view=newest)))
    else:
        node.handle(2.0, Received(2, Pong(1, 0, 0, 0)))
    assert not node.membership.view.is_online(2)
    assert 2 not in node.roster.candidates(node.membership.view, 7)


def test_whoever_is_expelled_is_told_nothing_not_even_when_others_are_missing() -> None:
    node = online_node(0, 4, known=[0, 2])
    node.handle(1.0, Expelled(2))
    assert {to for to, _ in sent(node.handle(2.0, WentOffline()))} == {1, 3}


def test_an_aggregator_that_is_expelled_is_not_waited_for() -> None:
    node = online_node(0, 4, sample_size=1)
    node.handle(1.0, Received(1, train_request(1, "m1", participants=1)))
    [(first, ping)] = sent(node.handle(2.0, Trained(1, "t1")), Ping)
    effects = pong(node, first, ping.exchange, 3.0, k=1)
    assert [to for to, _ in sent(effects, AggregateRequest)] == [first]
    [(second, _)] = sent(node.handle(4.0, Expelled(first)), Ping)
    assert second != first


def test_a_session_goes_on_without_whoever_is_expelled() -> None:
    """Views that were under way still say that it is there, and it goes on by itself."""
    expelled: set[int] = set()

    def delays(src: int, dst: int, body: object) -> tuple[float, ...]:
        # Nothing passes between the expelled and the others.
        return () if (src in expelled) != (dst in expelled) else (0.05,)

    session = Exchange(6, sample_size=3, delays=delays)
    session.go_online(*range(6))
    session.run_until(session.has_aggregated(3))
    expelled.add(5)
    for node in range(5):
        session.deliver(node, Expelled(5))
    before = max(fact.round for _, _, fact in session.of(SampleDerived))
    session.run_until(lambda: min(node.held_round for node in session.nodes[:5]) > before + 10)
    later = [f.sample for _, node, f in session.of(SampleDerived) if node != 5 and f.round > before]
    assert len(later) > 10
    assert not any(5 in sample for sample in later)
