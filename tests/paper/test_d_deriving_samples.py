"""Section III-D, Deriving Samples."""

from __future__ import annotations

from collections import Counter

import pytest

from plexus.protocol.api import Effect, Received, SetTimer, TimerFired, Trained
from plexus.protocol.facts import AggregatorChosen, SampleDerived
from plexus.protocol.messages import AggregateRequest, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.protocol.roster import Roster, key_of
from plexus.protocol.view import LEFT, View, event_number
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    Exchange,
    answer,
    asked,
    exchange_of,
    hash_order,
    online_node,
    pong,
    silence,
    train_request,
    view_of,
)

N, S, K = 8, 3, 4
ORDER = hash_order(N, K)


def searching(me: NodeId = ORDER[-1], **options: object) -> tuple[PlexusNode, list[Effect]]:
    """A node that has trained for K - 1 and samples round K to find its aggregator."""
    node = online_node(me, N, sample_size=S, **options)
    node.handle(1.0, Received(0, train_request(K - 1)))
    return node, node.handle(9.0, Trained(K - 1, "t"))


def answered_by(node: PlexusNode, *nodes: NodeId) -> list[Effect]:
    return answer(node, AGGREGATOR, *nodes, now=9.1)


def sample_of(effects: list[Effect]) -> tuple[NodeId, ...]:
    [sample] = [fact.sample for fact in reported(effects) if isinstance(fact, SampleDerived)]
    return sample


def test_d01_each_participant_computes_the_next_sample_by_itself() -> None:
    """III-D: sampling is decentralised: participants of a sample compute the next one independently."""
    exchange = Exchange(N, sample_size=S)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(K))
    derived = [
        (node, fact.sample)
        for _, node, fact in exchange.of(SampleDerived)
        if fact.ordinal == K and fact.purpose == "aggregator"
    ]
    number = exchange.numbers
    assert sorted(node for node, _ in derived) == sorted(hash_order(N, number[K - 1])[:S])
    assert {sample for _, sample in derived} == {tuple(hash_order(N, number[K])[:S])}


def test_d02_each_node_keeps_a_local_view_of_all_others() -> None:
    """III-D: every node records the membership of all other nodes in a local view."""
    exchange = Exchange(N, known=[])
    exchange.go_online(*range(N))
    exchange.run(1.0)
    for node in exchange.nodes:
        assert node.membership.view.actives() == list(range(N))


def test_d03_the_sample_follows_from_round_number_and_identifiers_alone() -> None:
    """III-D: a hash of round and identifiers lets each node compute the sample independently."""
    keys = [key_of(b"node %d" % node) for node in range(N)]
    mine, yours = Roster(b"s", keys), Roster(b"s", keys[::-1])
    for k in range(1, 100):
        assert [mine.keys[c] for c in mine.candidates(view_of(N), k)] == [
            yours.keys[c] for c in yours.candidates(view_of(N), k)
        ]


def test_d04_a_sample_has_s_active_nodes() -> None:
    """III-D: the procedure aims at a sample of s nodes that are active now."""
    node, _ = searching()
    assert len(sample_of(answered_by(node, *ORDER[:S]))) == S


def test_d05_only_nodes_considered_online_are_candidates() -> None:
    """III-D: to avoid waiting for nodes known to be offline, candidates are those considered online."""
    online = [node for node in range(N) if node not in ORDER[:2]]
    _, effects = searching(known=online)
    assert [to for to, _ in sent(effects, Ping)] == ORDER[2 : 2 + S]


def test_d06_the_round_number_randomizes_the_order() -> None:
    """III-D: because the round number goes into the hash, the order is another one every round."""
    orders = {tuple(hash_order(N, k)) for k in range(200)}
    assert len(orders) > 190


def test_d07_the_sorted_hashes_are_the_order_of_contact() -> None:
    """III-D: the sorted list is the order in which candidates are contacted."""
    node, effects = searching(ORDER[-1])
    contacted = [to for to, _ in sent(effects, Ping)]
    while node.sampler.is_searching(AGGREGATOR):
        effects = silence(node, exchange_of(node, AGGREGATOR), node.now + 2.0)
        contacted += asked(node, effects, AGGREGATOR)
    assert contacted == ORDER[:-1]


def test_d08_mostly_consistent_views_give_mostly_consistent_samples() -> None:
    """III-D: if lists of candidates agree mostly, so do the order of contact and the samples."""
    n, s, rounds = 50, 10, 100
    roster = Roster.simulated(b"s", n)
    most = view_of(n, [node for node in range(n) if node not in (3, 17)])
    shared = 0
    for k in range(rounds):
        all_of_them = roster.candidates(view_of(n), k)
        fewer = list(roster.candidates(most, k))
        assert fewer == [c for c in all_of_them if c not in (3, 17)], "the same order"
        shared += len(set(all_of_them[:s]) & set(fewer[:s]))
    assert shared / (rounds * s) > 0.9


def test_d09_only_who_answers_a_ping_in_time_is_considered() -> None:
    """III-D: candidates marked online may be offline, so only those count that pong within Δt_p."""
    node, effects = searching(ping_timeout_s=3.5)
    search = exchange_of(node, AGGREGATOR)
    half = SetTimer(("ping", search), 3.5 / 2)
    assert half in effects
    answered_by(node, ORDER[0], ORDER[2])
    assert half in node.handle(10.75, TimerFired(("ping", search))), (
        "it is pinged again, and waited for as long"
    )
    node.handle(12.5, TimerFired(("ping", search)))
    assert sent(pong(node, ORDER[1], search, 12.6)) == [], "a pong after the timeout"
    assert sample_of(answered_by(node, ORDER[3])) == (ORDER[0], ORDER[2], ORDER[3])


def test_d10_the_first_s_are_contacted_in_parallel() -> None:
    """III-D: to lower latency the first s candidates are all contacted at once."""
    _, effects = searching()
    assert [to for to, _ in sent(effects, Ping)] == ORDER[:S]


def test_d11_if_all_of_them_answer_the_sample_is_there_immediately() -> None:
    """III-D: in the best and most common case they all answer, and the procedure returns at once."""
    node, _ = searching()
    assert answered_by(node, *ORDER[: S - 1]) == []
    assert sample_of(answered_by(node, ORDER[S - 1])) == tuple(ORDER[:S])


def test_d12_otherwise_others_are_contacted_until_enough_answered() -> None:
    """III-D: the remaining candidates are contacted one after the other until s have answered. Here: as many
    at a time as are missing, for where many have vanished each would cost a timeout (docs/paper.md)."""
    node, _ = searching()
    answered_by(node, ORDER[0])
    effects = silence(node, exchange_of(node, AGGREGATOR), 11.0)
    assert asked(node, effects, AGGREGATOR) == [ORDER[3], ORDER[4]]
    assert sample_of(answered_by(node, ORDER[4], ORDER[3])) == (ORDER[0], ORDER[3], ORDER[4])


def test_d13_each_exchange_of_ping_and_pong_has_an_identifier() -> None:
    """III-D: an identifier tells the exchanges apart; with the answering node it is unique."""
    exchange = Exchange(N, sample_size=S)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(20))
    pings = [(src, dst, b.exchange) for _, src, dst, b in exchange.messages if type(b) is Ping]
    pongs = [(dst, src, b.exchange) for _, src, dst, b in exchange.messages if type(b) is Pong]
    assert len(pings) == len(set(pings))
    assert set(pongs) <= set(pings)


def test_d14_the_sample_is_the_first_s_in_hash_order_not_in_order_of_arrival() -> None:
    """III-D, Algorithm 1: the first s of the ordered candidates that answer a ping within Δt_p."""
    node, _ = searching()
    assert sample_of(answered_by(node, *reversed(ORDER[:S]))) == tuple(ORDER[:S])


def test_d15_inconsistent_views_split_a_round_but_not_the_session() -> None:
    """III-D: with views not yet in step, models go to different aggregators; learning is not undermined."""
    exchange = Exchange(N, sample_size=S)
    exchange.go_online(*range(N))
    exchange.run(10.0)
    best = max(hash_order(N, 2)[:S])
    mistaken = next(node for node in hash_order(N, 1)[:S] if node != best)
    exchange.nodes[mistaken].membership.view.learn(best, event_number(3, LEFT))
    exchange.run_until(exchange.has_aggregated(30), limit_s=1000)
    aggregators: dict[int, set[NodeId]] = {}
    for _, _, dst, body in exchange.messages:
        if isinstance(body, AggregateRequest):
            aggregators.setdefault(body.ordinal, set()).add(dst)
    assert len(aggregators[2]) == 2
    assert {len(aggregators[k]) for k in range(20, 30)} == {1}, "views are in step again"
    assert all(node.membership.view.is_online(best) for node in exchange.nodes)


def test_d16_the_aggregator_is_derived_from_the_sample() -> None:
    """III-D, Algorithm 2: the procedure for the aggregator calls the one for the sample."""
    node, _ = searching()
    effects = answered_by(node, *ORDER[:S])
    [chosen] = [fact for fact in reported(effects) if isinstance(fact, AggregatorChosen)]
    assert chosen.aggregator in sample_of(effects)


def test_d17_an_aggregator_receives_and_sends_at_most_s_models() -> None:
    """III-D: the aggregator handles at most s models in and s models out in a round."""
    exchange = Exchange(20, sample_size=S, success_fraction=1.0)
    exchange.go_online(*range(20))
    exchange.run_until(exchange.has_aggregated(20))
    received = Counter(
        (dst, b.round) for _, _, dst, b in exchange.messages if isinstance(b, AggregateRequest)
    )
    pushed = Counter((src, b.round) for _, src, _, b in exchange.messages if isinstance(b, TrainRequest))
    assert max(received.values()) == max(pushed.values()) == S


@pytest.mark.parametrize("best", range(S))
def test_d18_the_one_with_the_largest_bandwidth_aggregates(best: int) -> None:
    """III-D: of the derived sample, the participant with the highest bandwidth is selected."""
    bandwidths = [10] * N
    bandwidths[ORDER[best]] = 11
    bandwidths[ORDER[S]] = 99  # the fastest of all is not in the sample
    node, _ = searching(bandwidths=bandwidths)
    effects = answered_by(node, *ORDER[:S])
    assert [to for to, _ in sent(effects, AggregateRequest)] == [ORDER[best]]


def test_d19_bandwidths_are_part_of_the_view_and_travel_with_the_models() -> None:
    """III-D: bandwidths are in the views and are gossiped with the messages that carry models."""
    node = online_node(0, N, known=[0])
    view = View.of(N, [(5, 12345)]).snapshot()
    node.handle(1.0, Received(1, train_request(K, view=view)))
    assert node.membership.view.bandwidth_of(5) == 12345


def test_d20_nodes_are_sampled_uniformly() -> None:
    """III-D: the sampling of nodes is uniform at random: every place of the order is as likely."""
    n, rounds = 10, 4000
    places = Counter((node, at) for k in range(rounds) for at, node in enumerate(hash_order_of(n, k)))
    expected = rounds / n
    chi_squared = sum((places[node, at] - expected) ** 2 / expected for node in range(n) for at in range(n))
    assert chi_squared < 130, "the 99.9 % point of 81 degrees of freedom is 126"


def test_d21_an_online_node_is_in_every_n_over_s_th_sample_on_average() -> None:
    """III-D: any online node should be a participant once in n/s rounds on average."""
    n, s, rounds = 40, 4, 5000
    chosen = Counter(node for k in range(rounds) for node in hash_order_of(n, k)[:s])
    assert set(chosen) == set(range(n))
    assert all(abs(count / (rounds * s / n) - 1) < 0.2 for count in chosen.values())


ROSTERS: dict[int, Roster] = {}


def hash_order_of(n: int, k: int) -> list[NodeId]:
    """Like `hash_order`, for thousands of rounds."""
    return ROSTERS.setdefault(n, Roster.simulated(b"uniform?", n)).order(k).tolist()
