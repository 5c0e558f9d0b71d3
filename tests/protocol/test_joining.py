"""Coming online: ask a few, take the view of one that knows of the newest round, then tell P.

And what a live peer needs beyond the paper's messages: asking for a view, a bandwidth that changes.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest

from plexus.protocol.api import (
    BandwidthMeasured,
    CancelTimer,
    Durable,
    Effect,
    Received,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Train,
    WentOnline,
)
from plexus.protocol.facts import Suspected
from plexus.protocol.joining import COMING
from plexus.protocol.messages import Joined, NodeId, Ping, ViewReply, ViewRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import FIRST_SAMPLE
from plexus.protocol.sampling import PROBE
from plexus.protocol.view import JOINED, LEFT, View, event_number
from plexus.testing.exchange import INITIAL, reported, sent
from tests.protocol.kit import (
    NOTHING,
    Exchange,
    asked,
    exchange_of,
    hash_order,
    make_node,
    online_node,
    pong,
    silence,
    snapshot_of,
    train_request,
)

N = 5


def test_who_is_asked_for_its_view_sends_it() -> None:
    node = online_node(0, N)
    effects = node.handle(1.0, Received(3, ViewRequest()))
    assert sent(effects, ViewReply) == [(3, ViewReply(node.membership.view.snapshot()))]


def test_a_view_that_was_asked_for_is_merged() -> None:
    node = online_node(0, N)
    news = View.of(N)
    news.learn(4, event_number(7, LEFT), 0)
    assert node.membership.view.is_online(4)
    node.handle(1.0, Received(3, ViewReply(news.snapshot())))
    assert not node.membership.view.is_online(4)


@pytest.mark.parametrize(("counter", "heard"), [(0, False), (1, False), (2, True)])
def test_a_view_shows_whether_the_join_was_heard(counter: int, heard: bool) -> None:
    """An answer alone does not: the question may have arrived and the join not."""
    node = online_node(0, N)
    assert node.membership.counter == 2
    node.handle(1.0, Received(3, ViewReply(snapshot_of(N, (0, counter, True)))))
    again = node.handle(600.0, TimerFired(("readvertise", 0)))
    assert (sent(again, Joined) == []) == heard


def test_a_view_of_somebody_who_knows_nobody_is_no_news() -> None:
    node = online_node(3, N)
    assert node.handle(1.0, Received(1, ViewReply(NOTHING))) == []


def test_a_new_bandwidth_is_advertised_with_a_new_event() -> None:
    node = online_node(0, N)
    counter = node.membership.counter
    effects = node.handle(1.0, BandwidthMeasured(12_345))
    assert effects[0] == Save(Durable(counter + 1, 0, INITIAL, ANY))
    told = sent(effects, Joined)
    assert {body for _, body in told} == {Joined(counter + 1, 12_345)}
    assert node.membership.view.bandwidth_of(0) == 12_345


def test_the_address_of_who_joins_is_remembered() -> None:
    node = online_node(0, N)
    address = bytes(range(18))
    node.handle(1.0, Received(2, Joined(9, 100, address)))
    assert node.roster.address_of(2) == address


# From going online to having advertised oneself

MANY = 40
VIEW_S = 15 * 2.0
NO_VIEW = TimerFired(("view", 0))
START = ("start", 0)


def coming(me: NodeId = 0, n: int = MANY, **options: Any) -> tuple[PlexusNode, list[NodeId]]:
    """A node that went online at time 0, and whom it asks."""
    node = make_node(me, n, **options)
    return node, asked(node, node.handle(0.0, WentOnline()), COMING)


def told(effects: list[Effect]) -> list[tuple[NodeId, ...]]:
    """The receivers of each joined message to several."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.body, Joined)]
    return [effect.to for effect in sends if len(effect.to) > 1]


def starts(effects: list[Effect]) -> bool:
    return any(isinstance(effect, SetTimer) and effect.key == START for effect in effects)


def heard(node: PlexusNode, rounds: dict[NodeId, int], now: float = 0.1) -> list[Effect]:
    """Those asked answer that they know of these rounds; all effects."""
    exchange = exchange_of(node, COMING)
    return [e for src, k in rounds.items() for e in pong(node, src, exchange, now, k=k, held=k)]


def test_who_comes_asks_eight_of_those_it_believes_online_before_it_tells_anybody() -> None:
    node = make_node(0, MANY, durable=Durable(3, 7, "m7", ordinal=7))
    effects = node.handle(0.0, WentOnline())
    eight = asked(node, effects, COMING)
    assert len(eight) == len(set(eight)) == 8
    assert 0 not in eight
    assert {ping.round for _, ping in sent(effects, Ping)} == {7}, "what it holds"
    assert {type(body) for _, body in sent(effects)} == {Ping}
    assert any(isinstance(effect, Save) and effect.state.counter == 4 for effect in effects), "its new event"


def test_who_knows_too_few_asks_others_which_may_be_there() -> None:
    _, eight = coming(known=[0, 3, 5])
    assert len(set(eight)) == 8
    assert set(eight) > {3, 5}


def test_the_view_is_asked_of_the_one_that_knows_of_the_newest_round_once_all_have_answered() -> None:
    node, eight = coming()
    rounds = dict(zip(eight, [3, 0, 7, 9, 2, 1, 9, 4], strict=True))
    *first, last = eight
    assert sent(heard(node, {src: rounds[src] for src in first}), ViewRequest) == []
    effects = heard(node, {last: rounds[last]})
    assert sent(effects, ViewRequest) == [(eight[3], ViewRequest())], "the first of the best"
    assert SetTimer(("view", 0), VIEW_S) in effects
    assert told(effects) == []
    assert node.watchdog.k_seen == 9


def test_with_the_view_it_tells_p_of_those_who_are_there() -> None:
    node, eight = coming(advertise_size=5)
    heard(node, dict.fromkeys(eight, 9))
    view = View.of(MANY)
    for other in range(1, MANY):
        here = other in (20, 21, 22, 23, 24)
        view.learn(other, event_number(2, JOINED if here else LEFT), 100)
    view.learn(0, event_number(node.membership.counter, JOINED), 100)
    effects = node.handle(0.3, Received(eight[0], ViewReply(view.snapshot())))
    assert [sorted(p) for p in told(effects)] == [[20, 21, 22, 23, 24]]
    assert CancelTimer(("view", 0)) in effects
    assert not starts(effects), "there is a round"
    assert told(node.handle(0.4, Received(eight[1], ViewReply(view.snapshot())))) == [], "once"


def test_who_is_silent_is_waited_for_as_in_any_search_and_suspected() -> None:
    node, eight = coming()
    heard(node, dict.fromkeys(eight[1:], 9))
    effects = silence(node, exchange_of(node, COMING), 2.0)
    assert sent(effects, ViewRequest) == [(eight[1], ViewRequest())]
    assert asked(node, effects, PROBE) == [eight[0]]
    assert reported(silence(node, exchange_of(node, PROBE), 4.0), Suspected) == [Suspected(eight[0])]


def test_if_a_view_does_not_come_the_next_best_are_asked_and_then_it_goes_without() -> None:
    node, eight = coming()
    effects = heard(node, dict(zip(eight, range(1, 9), strict=True)))
    now, whom = 0.1, [to for to, _ in sent(effects, ViewRequest)]
    while node.joining.is_under_way:
        assert told(effects) == []
        now += VIEW_S
        effects = node.handle(now, NO_VIEW)
        whom += [to for to, _ in sent(effects, ViewRequest)]
    assert whom == [eight[7], eight[6], eight[5]]
    assert len(told(effects)) == 1
    assert node.handle(now + VIEW_S, NO_VIEW) == []


def test_if_nobody_knows_of_a_round_there_is_no_view_to_ask_for() -> None:
    node, eight = coming()
    effects = heard(node, dict.fromkeys(eight, 0))
    assert sent(effects, ViewRequest) == []
    assert len(told(effects)) == 1
    assert starts(effects)


def test_if_nobody_answers_it_asks_twice_more_then_anybody_and_goes_alone() -> None:
    node, eight = coming(known=range(9))
    now, batches = 0.0, [eight]
    while node.joining.is_under_way:
        now += 2.0
        effects = silence(node, exchange_of(node, COMING), now)
        batches.append(asked(node, effects, COMING))
    assert [len(batch) for batch in batches] == [8, 8, 8, 0]
    assert set(batches[0]) == set(range(1, 9))
    assert not set(batches[2]) <= set(range(1, 9)), "all whom it believes online may be gone"
    assert sent(effects, ViewRequest) == []
    assert len(told(effects)) == 1
    assert starts(effects)


@pytest.mark.parametrize("held", [0, 7])
@pytest.mark.parametrize("known_to_one", [0, 9])
def test_only_if_neither_it_nor_anybody_asked_knows_of_a_round_it_waits_for_the_first(
    held: int, known_to_one: int
) -> None:
    node, eight = coming(durable=Durable(3, held, "m", ordinal=held))
    effects = heard(node, dict.fromkeys(eight, 0) | {eight[5]: known_to_one})
    if node.joining.is_under_way:
        effects += node.handle(1.0, Received(eight[5], ViewReply(NOTHING)))
    assert starts(effects) == (held == known_to_one == 0)


def test_a_first_ping_ends_the_asking_for_who_waited_on_would_miss_the_round() -> None:
    first = hash_order(N, 1)
    node, _ = coming(first[0], N)
    effects = node.handle(0.1, Received(first[1], Ping(3, 1)))
    assert len(told(effects)) == 1
    assert asked(node, effects, FIRST_SAMPLE) == [first[1]]
    assert not node.joining.is_under_way


@pytest.mark.parametrize("k", [0, 2])
def test_other_pings_do_not_end_the_asking(k: int) -> None:
    node, _ = coming()
    node.handle(0.1, Received(1, Ping(3, k)))
    assert node.joining.is_under_way


def test_who_knows_of_later_rounds_is_not_hurried_by_a_ping_of_the_first() -> None:
    node, _ = coming(durable=Durable(3, 7, "m7", ordinal=7))
    node.handle(0.1, Received(1, Ping(3, 1)))
    assert node.joining.is_under_way


def test_work_that_comes_meanwhile_is_done() -> None:
    node, eight = coming()
    assert Train(5, "m5") in node.handle(0.1, Received(30, train_request(5, "m5")))
    heard(node, dict.fromkeys(eight, 4))
    effects = node.handle(0.5, Received(eight[0], ViewReply(NOTHING)))
    assert len(told(effects)) == 1
    assert not starts(effects)


def test_a_crash_while_asking_begins_it_anew_and_old_answers_do_not_count() -> None:
    node, eight = coming()
    before = exchange_of(node, COMING)
    again = asked(node, node.handle(1.0, WentOnline()), COMING)
    assert len(again) == 8
    for src in eight:
        assert sent(pong(node, src, before, 1.1, k=9), ViewRequest) == []
    assert node.joining.is_under_way


def test_who_comes_to_a_session_under_way_learns_who_left_before_it_tells_anybody() -> None:
    """Its own view is as old as its absence: many whom it believes online are gone."""
    n, gone = 30, range(10, 30)
    session = Exchange(n, sample_size=3)
    session.go_online(*range(n))
    session.run_until(session.has_aggregated(2))
    session.leave(0)
    for node in gone:
        session.leave(node)
    session.run_until(session.has_aggregated(12), limit_s=session.now + 2500)
    returned_s = session.now
    session.go_online(0)
    session.run_until(lambda: not session.nodes[0].joining.is_under_way)
    view = session.nodes[0].membership.view
    assert not any(view.is_online(node) for node in gone)
    session.run(session.now + 1.0)
    joined = [(at, to) for at, src, to, body in session.messages if src == 0 and isinstance(body, Joined)]
    assert {to for at, to in joined if at > returned_s} == set(range(1, 10)), "all of those who are there"
