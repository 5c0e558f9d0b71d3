"""Where members may lie, no single message decides anything; where they are honest, everybody is believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plexus.protocol.api import (
    Aggregate,
    Durable,
    Effect,
    Received,
    Report,
    Save,
    Send,
    TimerFired,
    Train,
    Trained,
    Undelivered,
    WentOnline,
)
from plexus.protocol.facts import Refused, SessionEnded
from plexus.protocol.messages import (
    Ack,
    AggregateRequest,
    Joined,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
    ViewReply,
)
from plexus.protocol.parameters import Course
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import RESTART
from plexus.protocol.trust import FORGIVEN, LOST, REACH, ROOM
from plexus.protocol.view import JOINED, SUSPECTED, Snapshot, View, event_number
from plexus.testing.exchange import sent
from tests.protocol.kit import (
    NOTHING,
    Exchange,
    aggregate_request,
    answer,
    exchange_of,
    hash_order,
    make_node,
    online_node,
    pong,
    train_request,
)

FAR = 10**6


def wary(me: NodeId = 0, n: int = 6, **options: Any) -> PlexusNode:
    return online_node(me, n, **{"signed_views": True, "sample_size": 5} | options)


def refused(effects: list[Effect]) -> list[Refused]:
    facts = [effect.fact for effect in effects if isinstance(effect, Report)]
    return [fact for fact in facts if isinstance(fact, Refused)]


def trains(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Train) for effect in effects)


def ping(node: PlexusNode, src: NodeId, k: int, now: float = 1.0) -> list[Effect]:
    return node.handle(now, Received(src, Ping(7, k)))


# Rounds move in steps


def test_a_round_far_ahead_counts_once_another_member_says_the_same() -> None:
    node = wary()
    effects = ping(node, 1, FAR)
    assert node.watchdog.k_seen == 0
    assert {to for to, _ in sent(effects, Ping)} <= set(range(1, 6)), "others are asked"
    assert len(sent(effects, Ping)) >= 2
    ping(node, 1, FAR)
    assert node.watchdog.k_seen == 0, "to say it twice is not to be two"
    ping(node, 2, FAR)
    assert node.watchdog.k_seen == FAR


@pytest.mark.parametrize(("n", "needed"), [(6, 2), (10, 2), (11, 3), (31, 5), (200, 5)])
def test_where_more_may_lie_together_more_must_say_the_same(n: int, needed: int) -> None:
    node = wary(n=n)
    for src in range(1, needed):
        asked = sent(ping(node, src, 1000 * FAR), Ping)
        assert len(asked) >= min(n - 1, 2 * needed) or src > 1
        assert node.watchdog.k_seen == 0
    ping(node, needed, 1000 * FAR)
    assert node.watchdog.k_seen == 1000 * FAR


def test_a_round_that_is_not_believed_keeps_nobody_from_starting_again() -> None:
    node = wary(durable=Durable(3, 7, "m7", ordinal=7))
    node.handle(2000.0, TimerFired(("watchdog", 0)))
    exchange = exchange_of(node, RESTART)
    first, *_ = node.sampler.exchanges[exchange].sample.waiting
    node.handle(2000.1, Received(first, Pong(exchange, FAR, 0, node.membership.event)))
    assert node.is_searching(RESTART)


def test_who_claims_a_step_that_no_view_explains_is_heeded_no_more() -> None:
    node = wary(n=4)
    effects = node.handle(1.0, Received(1, msgspec.structs.replace(train_request(1), step=2**40)))
    assert not trains(effects) and refused(effects)
    ping(node, 1, 2, now=2.0)
    assert node.watchdog.k_seen < 2
    ping(node, 2, 2, now=3.0)
    assert node.watchdog.k_seen == 2


def test_a_round_within_reach_is_believed_of_anybody() -> None:
    node = wary()
    ping(node, 1, node.trust.reach)
    assert node.watchdog.k_seen == node.trust.reach >= REACH


def test_with_one_other_member_there_is_nobody_else_to_ask() -> None:
    node = wary(n=2)
    ping(node, 1, FAR)
    assert node.watchdog.k_seen == FAR


def test_without_signed_views_everybody_is_believed() -> None:
    node = wary(signed_views=False)
    ping(node, 1, FAR)
    assert node.watchdog.k_seen == FAR


def test_who_speaks_of_a_round_that_nobody_else_knows_is_named() -> None:
    node = wary()
    ping(node, 1, FAR, now=1.0)
    assert not refused(ping(node, 2, 1, now=2.0)), "others have not been heard yet"
    assert refused(ping(node, 3, 2, now=60.0)) == [Refused(1, f"round {FAR}", "nobody else knows of it")]
    assert not refused(ping(node, 2, 3, now=61.0))


def test_a_model_of_a_round_far_ahead_is_trained_once_it_is_confirmed() -> None:
    node = wary()
    effects = node.handle(1.0, Received(1, train_request(FAR)))
    assert not trains(effects)
    assert node.held_round == 0
    effects = ping(node, 2, FAR, now=2.0)
    assert trains(effects)
    assert node.held_round == FAR


def test_a_far_trained_model_begins_no_aggregation() -> None:
    node = wary()
    node.handle(1.0, Received(1, aggregate_request(FAR)))
    assert not node.aggregation.collecting
    for src in (1, 2):
        node.handle(1.0, Received(src, aggregate_request(2)))
    assert node.aggregation.k_agg == 2


def test_a_node_that_was_misled_finds_its_way_back() -> None:
    lost = LOST * 100
    node = make_node(0, 6, signed_views=True, sample_size=5, durable=Durable(3, lost, "m", ordinal=9))
    node.handle(0.0, WentOnline())
    assert node.watchdog.k_seen == lost
    pong(node, 1, 99, now=1.0, k=50)
    assert node.watchdog.k_seen == lost, "one may be far behind"
    pong(node, 2, 99, now=1.0, k=51)
    assert node.watchdog.k_seen == node.training.k_train == node.aggregation.k_agg == node.held_round == 51
    assert trains(node.handle(2.0, Received(2, train_request(52))))


def test_nobody_goes_back_because_some_are_behind() -> None:
    node = wary(durable=Durable(3, 10_000, "m", ordinal=9))
    for src in range(1, 6):
        pong(node, src, 99, now=1.0, k=5)
    assert node.watchdog.k_seen == 10_000


# The hash decides who may say what


N, S, K = 20, 3, 7


def position(at: int) -> NodeId:
    return hash_order(N, K)[at]


def in_sample(me: NodeId, **options: Any) -> PlexusNode:
    return wary(me, N, sample_size=S, watchdog_s=1000.0, **options)


def test_who_asks_to_train_must_be_in_the_sample_of_the_round() -> None:
    node = in_sample(position(0))
    ping(node, position(1), K - 1)
    effects = node.handle(2.0, Received(position(N - 1), train_request(K)))
    assert not trains(effects)
    why = "it is not in the sample of the round"
    assert refused(effects) == [Refused(position(N - 1), "a request to train", why)]
    assert trains(node.handle(2.0, Received(position(ROOM * S - 1), train_request(K)))), "views may differ"


def test_who_is_not_in_the_sample_does_not_train() -> None:
    node = in_sample(position(N - 1))
    ping(node, position(1), K - 1)
    effects = node.handle(2.0, Received(position(0), train_request(K)))
    assert not trains(effects)
    assert [fact.src for fact in refused(effects)] == [position(0)]


def test_after_a_pause_anybody_may_start_again() -> None:
    node = in_sample(position(0))
    ping(node, position(1), K - 1)
    effects = node.handle(700.0, Received(position(N - 1), train_request(K)))
    assert trains(effects)


@pytest.mark.parametrize(
    ("trained_in", "why"),
    [
        (K + 1, "its rounds do not follow each other"),
        (K + 2, "its rounds do not follow each other"),
        (K, "it was not in the sample that trained"),
    ],
)
def test_who_sends_a_model_was_in_the_sample_that_trained(trained_in: int, why: str) -> None:
    node = in_sample(hash_order(N, K + 1)[0])
    ping(node, position(1), K)
    request = AggregateRequest(K + 1, trained_in, K + 1, 3, 1, NOTHING, "t")
    effects = node.handle(2.0, Received(position(N - 1), request))
    assert [(fact.src, fact.why) for fact in refused(effects)] == [(position(N - 1), why)]
    assert not node.aggregation.collecting


# How many took part is derived


def claimed(node: PlexusNode, src: NodeId, participants: int) -> list[Effect]:
    return node.handle(2.0, Received(src, aggregate_request(2, f"t{src}", participants)))


def aggregated(effects: list[Effect]) -> tuple[Any, ...]:
    return next((effect.models for effect in effects if isinstance(effect, Aggregate)), ())


def test_one_sender_is_not_a_round_whatever_it_says() -> None:
    node = wary(success_fraction=0.8)
    assert not aggregated(claimed(node, 1, 1))
    assert not aggregated(claimed(node, 2, 5))
    assert not aggregated(claimed(node, 3, 5))
    assert len(aggregated(claimed(node, 4, 5))) == 4


def test_nobody_is_waited_for_who_cannot_be_there() -> None:
    node = wary(success_fraction=0.8)
    assert not aggregated(claimed(node, 1, 2**20))
    assert not aggregated(claimed(node, 2, 2))
    assert len(aggregated(claimed(node, 3, 2))) == 3


def test_in_a_session_of_two_one_model_may_be_all() -> None:
    node = wary(n=2, success_fraction=0.8)
    assert len(aggregated(claimed(node, 1, 1))) == 1


# Who is relied on


def at_aggregator(node: PlexusNode) -> NodeId:
    """The node trains and sends its model: to whom."""
    node.handle(1.0, Received(1, train_request(1, participants=5)))
    node.handle(2.0, Trained(1, "t", 1))
    effects: list[Effect] = []
    for src in [
        other
        for other in range(1, 6)
        if other in node.sampler.exchanges[exchange_of(node, "aggregator")].sample.waiting
    ]:
        effects += answer(node, "aggregator", src, now=3.0)
    [(aggregator, _)] = sent(effects, AggregateRequest)
    return aggregator


def test_an_acknowledgement_by_who_was_sent_no_model_is_refused() -> None:
    node = wary()
    aggregator = at_aggregator(node)
    stranger = next(other for other in range(1, 6) if other != aggregator)
    effects = node.handle(4.0, Received(stranger, Ack(node.training.next_round)))
    assert [fact.src for fact in refused(effects)] == [stranger]
    assert node.training.awaited == aggregator
    node.handle(4.0, Received(aggregator, Ack(node.training.next_round)))
    assert node.training.awaited is None


def test_an_aggregator_that_made_nothing_of_a_model_is_chosen_last_for_some_time() -> None:
    node = wary()
    aggregator = at_aggregator(node)
    effects = node.handle(500.0, TimerFired(("ack", 0)))
    assert [fact.src for fact in refused(effects)] == [aggregator]
    others = [other for other in range(1, 6) if other != aggregator]
    assert node.trust.best([aggregator, *others]) == max(others)
    assert node.trust.best([aggregator]) == aggregator, "if there is nobody else"
    node.now = 500.0 + FORGIVEN * node.parameters.ack_timeout_s + 1
    assert node.trust.best([aggregator, *others]) == max(aggregator, *others)
    node.trust.failed(aggregator)
    node.now += FORGIVEN * node.parameters.ack_timeout_s + 1
    assert node.trust.best([aggregator, *others]) == max(others), "twice as long"


@pytest.mark.parametrize("size", [1, 2])
def test_where_nobody_of_a_sample_made_anything_of_a_model_those_after_them_are_asked(size: int) -> None:
    for me in range(12):  # one that trains in round 1 and has no part in the next
        node = wary(me, sample_size=size, n=12)
        first, order = ([*node.roster.candidates(node.view, k)] for k in (1, 2))
        if me in first[: 2 * size] and me not in order[: 2 * size]:
            break
    src = next(other for other in first if other != me)
    node.handle(1.0, Received(src, train_request(1)))
    node.handle(2.0, Trained(1, "t", 1))
    asked = []
    for tries in range(2 * size):
        now = 500.0 * (tries + 1)
        answer(
            node,
            "aggregator",
            *node.sampler.exchanges[exchange_of(node, "aggregator")].sample.waiting,
            now=now,
        )
        asked.append(node.training.awaited)
        node.handle(now + 400.0, TimerFired(("ack", 0)))
    assert {*asked[:size]} == {*order[:size]}, "its sample first"
    assert {*asked[size:]} == {*order[size : 2 * size]}


# One member's word moves nobody further than to the end of the order


def suspecting(node: PlexusNode, suspect: NodeId) -> Snapshot:
    view = View(node.view.snapshot())
    view.learn(suspect, node.view.event_of(suspect) + SUSPECTED - JOINED, view.bandwidth_of(suspect))
    return view.snapshot()


def test_who_is_suspected_by_one_is_asked_last_and_by_two_is_gone() -> None:
    node = wary()
    doubted = node.roster.candidates(node.view, K)[0]
    tellers = [other for other in range(1, 6) if other != doubted]
    view = suspecting(node, doubted)
    for _ in range(2):
        node.handle(5.0, Received(tellers[0], ViewReply(view)))
        assert node.view.is_online(doubted)
        assert node.roster.candidates(node.view, K)[-1] == doubted
    node.handle(6.0, Received(tellers[1], ViewReply(view)))
    assert node.view.is_suspected(doubted)


def test_news_of_a_doubted_node_end_the_doubt() -> None:
    node = wary()
    node.handle(5.0, Received(1, ViewReply(suspecting(node, 3))))
    assert node.view.doubted == {3}
    node.view.learn(3, event_number(9, JOINED), 400)
    assert not node.view.doubted
    assert list(node.roster.candidates(node.view, K)) == hash_order(6, K)


def test_what_one_says_of_the_node_itself_it_refutes() -> None:
    node = wary()
    before = node.membership.counter
    node.handle(5.0, Received(1, ViewReply(suspecting(node, 0))))
    assert node.membership.counter == before + 1
    assert node.view.is_online(0)


# One member against a session: what it does is tried, and what the session does with it and without


N, HONEST_S, LATER_S = 10, 200.0, 3000.0
LIAR = N - 1


def session(n: int = N, size: int = 3, **options: Any) -> Exchange:
    exchange = Exchange(n, signed_views=True, views="lacking", sample_size=size, **options)
    exchange.go_online(*range(n))
    return exchange.run(HONEST_S)


def test_one_view_in_which_all_others_are_suspected_changes_nothing_for_long() -> None:
    def rounds_after(lie: bool) -> int:
        exchange = session(n=12)
        before = len(exchange.rounds)
        told = exchange.nodes[11].view.snapshot()
        for node in range(11) if lie else ():
            events = told.events.copy()
            others = [other for other in range(11) if other != node]
            events[others] += SUSPECTED - JOINED
            exchange.deliver(node, Received(11, ViewReply(Snapshot(events, told.bandwidths, True))))
            assert exchange.nodes[node].view.doubted
        exchange.run(LATER_S)
        assert not any(node.view.doubted for node in exchange.nodes)
        return len(exchange.rounds) - before

    assert rounds_after(lie=True) > 0.9 * rounds_after(lie=False)


def test_who_says_again_and_again_that_this_node_is_suspected_does_not_keep_its_disk_busy() -> None:
    node, saves = wary(n=30), 0
    node.roster.is_own = lambda *_: False  # type: ignore[method-assign] # numbers alone prove nothing
    event = node.membership.event
    for times in range(1000):
        said = Pong(
            0, 0, 0, event + SUSPECTED - JOINED + times * (event_number(2, JOINED) - event_number(1, JOINED))
        )
        saves += sum(isinstance(effect, Save) for effect in node.handle(1 + times / 1000, Received(29, said)))
    assert 1 <= saves <= 4
    later = node.parameters.readvertise_s
    said = Pong(0, 0, 0, node.membership.event + SUSPECTED - JOINED)
    assert any(isinstance(effect, Save) for effect in node.handle(later, Received(29, said))), "but is heeded"


def test_a_new_member_of_whom_the_view_does_not_know_breaks_nothing() -> None:
    """Its link comes up, and it pings, before any view says that it is there."""
    n = 20
    node = wary(n=n, sample_size=3)
    k = next(k for k in range(1, 500) if {0, 5} <= set(hash_order(n, k)[:6]))
    asked = train_request(k, view=node.view.snapshot()), aggregate_request(k + 1, view=node.view.snapshot())
    node.handle(1.0, Received(node.roster.number(b"a new member 123"), Ping(5, 0)))
    for request in asked:
        node.handle(2.0, Received(5, request))
    assert node.training.k_train == k


# Lies about how many rounds there were


@pytest.mark.parametrize(
    ("kind", "ordinal"), [(AggregateRequest, 1000), (AggregateRequest, 2**40 - 1), (TrainRequest, 2**40 - 1)]
)
def test_how_many_rounds_there_were_is_not_for_one_member_to_say(kind: type[Any], ordinal: int) -> None:
    exchange, lies = session(n=12, course=Course(rounds=1000)), []
    perform = exchange._perform

    def lie(node: NodeId, effect: Effect) -> None:
        if node == 10 and isinstance(effect, Send) and isinstance(effect.body, kind) and not lies:
            lies.append(effect.body.ordinal)
            said = ordinal if kind is AggregateRequest else ordinal - 1
            effect = Send(effect.to, msgspec.structs.replace(effect.body, ordinal=said))
        perform(node, effect)

    exchange._perform = lie  # type: ignore[method-assign]
    exchange.is_checked = False
    exchange.run(LATER_S)
    assert lies
    assert exchange.of(SessionEnded) == []
    assert lies[0] + 100 < exchange.rounds[-1] < 300


def test_who_offers_models_that_do_not_come_makes_nobody_tell_of_itself_all_the_time() -> None:
    node, told = wary(n=30), 0
    lost = Undelivered(0, aggregate_request(9))
    for times in range(1000):
        told += len(sent(node.handle(100 + times / 500, lost), Joined))
    assert 0 < told <= 3 * node.parameters.readvertise_to
