"""Deriving samples: the first s in hash order that answer, whoever is silent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.api import Aggregated, CancelTimer, Effect, Received, Report, Send, SetTimer, TimerFired
from plexus.protocol.facts import AnsweredLate, SampleDerived
from plexus.protocol.messages import NodeId, Ping, Pong, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS, step
from plexus.protocol.sampling import PROBE, SampleSearch
from plexus.protocol.view import JOINED, event_number
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    aggregate_request,
    asked,
    come_online,
    exchange_of,
    hash_order,
    online_node,
    pong,
    silence,
)

N, K = 6, 5
PING_TIMEOUT_S = 2.0

# The search alone


def first_that_answer(
    me: NodeId, candidates: list[NodeId], size: int, answering: set[NodeId]
) -> tuple[NodeId, ...]:
    """The dumb oracle: Algorithm 1, with hindsight."""
    return tuple(c for c in candidates if c in answering or c == me)[:size]


@given(
    candidates=st.integers(0, 12).flatmap(lambda n: st.permutations(range(n))),
    me=st.integers(0, 15),
    size=st.integers(1, 8),
    answering=st.sets(st.integers(0, 12)),
    one_by_one=st.booleans(),
    order_of_answers=st.randoms(use_true_random=False),
)
def test_the_sample_is_the_first_s_in_hash_order_that_answer_for_any_pattern_of_silence(
    candidates: list[NodeId],
    me: NodeId,
    size: int,
    answering: set[NodeId],
    one_by_one: bool,
    order_of_answers: object,
) -> None:
    search = SampleSearch(me, candidates, size, one_by_one=one_by_one)
    contacted: list[NodeId] = []
    batches = []
    while batch := search.to_ping():
        assert search.to_ping() == (), "nobody else while answers are awaited"
        batches.append(batch)
        contacted += batch
        answers = [node for node in batch if node in answering]
        order_of_answers.shuffle(answers)  # type: ignore[attr-defined]
        settled = [search.answered(node) for node in answers]
        if len(answers) < len(batch):
            assert not any(settled)
            search.timed_out()
        else:
            assert settled == [False] * (len(batch) - 1) + [True]
    assert search.done
    assert search.found == first_that_answer(me, candidates, size, answering)
    assert search.silent == len([node for node in contacted if node not in answering])
    # Frugal: never to oneself, never twice, nobody beyond the last member that was needed.
    assert me not in contacted
    assert len(contacted) == len(set(contacted))
    if one_by_one:
        assert all(len(batch) == 1 for batch in batches)
    have = 0
    for batch in batches:
        assert len(batch) <= size - have, "no more than are missing"
        have += len(answering.intersection(batch))
    if len(search.found) == size:
        last = max(candidates.index(search.found[-1]) + 1, 0 if one_by_one else size)
        assert set(contacted) <= set(candidates[:last])


def test_answers_that_were_not_asked_for_count_for_nothing() -> None:
    search = SampleSearch(9, [1, 2, 3], 2)
    assert search.to_ping() == (1, 2)
    assert not search.answered(3)
    assert not search.answered(1)
    assert not search.answered(1), "a duplicate"
    search.timed_out()
    assert not search.answered(2), "too late"
    assert search.to_ping() == (3,)
    assert search.answered(3)
    assert search.found == (1, 3)


# The search as the node runs it: here, of an aggregator that pushes to the participants of round K


def aggregator(s: int = 3, n: int = N, me_at: int | None = None) -> PlexusNode:
    """A node that is about to look for the participants of round K."""
    order = hash_order(n, K)
    me = order[-1] if me_at is None else order[me_at]
    node = online_node(me, n, sample_size=s)
    node.handle(1.0, Received(me, aggregate_request(K, participants=1)))
    return node


def begin(node: PlexusNode) -> list[Effect]:
    return node.handle(1.0, Aggregated(K, "m5"))


def answered_by(node: PlexusNode, src: NodeId, exchange: int, now: float = 1.1) -> list[Effect]:
    return pong(node, src, exchange, now)


def test_the_first_s_are_pinged_in_parallel_under_one_number() -> None:
    first = hash_order(N, K)[:3]
    assert begin(aggregator())[-2:] == [
        Send(tuple(first), Ping(2, K)),
        SetTimer(("ping", 2), PING_TIMEOUT_S / 2),
    ]


def test_when_all_answer_the_sample_is_found_at_once_and_in_hash_order() -> None:
    node, first = aggregator(), hash_order(N, K)[:3]
    begin(node)
    assert answered_by(node, first[2], 2) == []
    assert answered_by(node, first[0], 2) == []
    view = node.membership.view.snapshot()
    assert answered_by(node, first[1], 2) == [
        CancelTimer(("ping", 2)),
        Report(SampleDerived(K, K, PARTICIPANTS, tuple(first), 0)),
        Send(tuple(first), TrainRequest(K, step(N), K, 3, view, "m5")),
    ]


def test_all_who_are_missing_are_replaced_at_once_each_exchange_with_a_number_of_its_own() -> None:
    node, order = aggregator(), hash_order(N, K)
    begin(node)
    answered_by(node, order[1], 2)
    effects = silence(node, 2, 3.0)
    assert asked(node, effects, PARTICIPANTS) == [order[3], order[4]]
    assert asked(node, effects, PROBE) == [order[0], order[2]], "are they gone?"
    assert exchange_of(node, PARTICIPANTS) != exchange_of(node, PROBE) != 2
    answered_by(node, order[4], exchange_of(node, PARTICIPANTS), 3.1)
    # The last candidate is the node itself, which needs no ping.
    effects = silence(node, exchange_of(node, PARTICIPANTS), 5.0)
    assert reported(effects) == [SampleDerived(K, K, PARTICIPANTS, (order[1], order[4], order[5]), silent=3)]


def test_a_pong_after_the_timeout_or_under_another_number_does_not_count() -> None:
    node, order = aggregator(), hash_order(N, K)
    begin(node)
    answered_by(node, order[1], 2)
    answered_by(node, order[2], 2)
    silence(node, 2, 3.0)
    assert answered_by(node, order[0], 2, 3.1) == [Report(AnsweredLate(order[0], 3.1 - 1.0))], "too late"
    assert answered_by(node, order[0], 2, 3.1) == [], "and said once"
    assert answered_by(node, order[3], 2, 3.1) == [], "the right node, the wrong exchange"
    effects = answered_by(node, order[3], exchange_of(node, PARTICIPANTS), 3.2)
    assert reported(effects) == [SampleDerived(K, K, PARTICIPANTS, (order[1], order[2], order[3]), silent=1)]


def test_a_search_does_not_survive_a_crash() -> None:
    node, order = aggregator(), hash_order(N, K)
    begin(node)
    come_online(node, 1.05)
    for candidate in order[:3]:
        assert answered_by(node, candidate, 2) == []


def test_a_search_begun_again_takes_the_place_of_the_first() -> None:
    first = hash_order(N, 1)
    node = online_node(first[0], N, sample_size=3)
    node.handle(5.0, TimerFired(("start", 0)))
    effects = node.handle(5.0, TimerFired(("start", 0)))
    assert effects == [
        CancelTimer(("ping", 2)),
        Send(tuple(first[1:3]), Ping(3, 1)),
        SetTimer(("ping", 3), PING_TIMEOUT_S / 2),
    ]


def test_a_duplicate_pong_does_not_count_twice() -> None:
    node, order = aggregator(), hash_order(N, K)
    begin(node)
    for _ in range(3):
        assert answered_by(node, order[0], 2) == []


def test_the_searching_node_is_in_the_sample_without_a_ping() -> None:
    node = aggregator(me_at=1)
    first = hash_order(N, K)[:3]
    effects = begin(node)
    assert [to for to, _ in sent(effects, Ping)] == [first[0], first[2]]
    effects = answered_by(node, first[0], 2) + answered_by(node, first[2], 2)
    assert reported(effects) == [SampleDerived(K, K, PARTICIPANTS, tuple(first), 0)]


def test_fewer_candidates_than_s_make_a_smaller_sample_of_all_that_answer() -> None:
    node, order = aggregator(s=10, n=3), hash_order(3, K)
    assert [to for to, _ in sent(begin(node), Ping)] == order[:2]
    answered_by(node, order[0], 2)
    effects = silence(node, 2, 3.0)
    assert reported(effects) == [SampleDerived(K, K, PARTICIPANTS, (order[0], order[2]), silent=1)]
    assert {request.participants for _, request in sent(effects, TrainRequest)} == {2}


def test_a_node_alone_is_its_own_sample_at_once() -> None:
    node = aggregator(s=3, n=1)
    assert reported(begin(node))[-1] == SampleDerived(K, K, PARTICIPANTS, (0,), 0)


def test_nodes_known_to_have_left_are_not_contacted() -> None:
    order = hash_order(N, K)
    node = online_node(order[-1], N, sample_size=2, known=order[2:])
    node.handle(1.0, Received(node.me, aggregate_request(K, participants=1)))
    assert [to for to, _ in sent(begin(node), Ping)] == order[2:4]


def test_every_ping_is_answered_with_what_was_known_before_it() -> None:
    node = online_node(0, N)
    assert node.handle(1.0, Received(3, Ping(17, 4))) == [Send((3,), Pong(17, 0, 0, event_number(1, JOINED)))]
    assert node.handle(1.0, Received(3, Ping(18, 2))) == [Send((3,), Pong(18, 4, 0, event_number(1, JOINED)))]
