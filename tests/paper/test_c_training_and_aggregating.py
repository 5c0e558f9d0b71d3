"""Section III-C, Training and Aggregating Models."""

from __future__ import annotations

import pytest

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    CancelTimer,
    Collect,
    Received,
    SetTimer,
    TimerFired,
    Train,
    Trained,
)
from plexus.protocol.facts import AggregationCompleted, TrainingStarted
from plexus.protocol.messages import Ack, AggregateRequest, Message, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.protocol.quorum import PARTICIPANTS
from plexus.testing.exchange import sent
from tests.protocol.kit import (
    Exchange,
    aggregate_request,
    answer,
    exchange_of,
    hash_order,
    online_node,
    train_request,
    without,
)

N, S, K = 6, 3, 4
ACK, AGGREGATION = ("ack", 0), ("aggregation", 0)


def train(k: int = K, model: str = "m") -> Received:
    return Received(5, train_request(k, model, S))


def aggregate(src: NodeId, k: int = K, model: str = "t") -> Received:
    return Received(src, aggregate_request(k, model, S, samples=10))


def node_of(me: NodeId = 0, **options: float) -> PlexusNode:
    return online_node(me, N, **{"sample_size": S, "success_fraction": 1.0} | options)


def node_with_a_model() -> tuple[PlexusNode, list[NodeId], AggregateRequest]:
    """Outside the sample of K + 1, trained, all pinged have answered: (node, that sample, what it sent)."""
    sample = hash_order(N, K + 1)[:S]
    node = node_of(hash_order(N, K + 1)[S])
    node.handle(1.0, train())
    node.handle(9.0, Trained(K, "trained"))
    effects = answer(node, AGGREGATOR, *sample, now=9.1)
    [(_, request)] = sent(effects, AggregateRequest)
    return node, sample, request


def test_c01_two_tasks_run_concurrently() -> None:
    """III-C: a node has a task for aggregation and one for training, which can run at the same time."""
    node = node_of()
    node.handle(1.0, aggregate(1, K + 1))
    node.handle(1.0, train(K))
    assert node.aggregation.collecting
    assert node.training.busy


def test_c02_a_node_may_train_in_one_sample_and_aggregate_in_the_next() -> None:
    """III-C: concurrently, a node may train in S^k and aggregate in S^(k+1), even its own model."""
    exchange = Exchange(1, sample_size=1)
    exchange.go_online(0)
    exchange.run(100.0)
    trained = {fact.ordinal for _, _, fact in exchange.of(TrainingStarted)}
    assert {k + 1 for k in trained if k + 1 <= max(exchange.rounds)} == set(exchange.rounds)


def test_c03_the_tasks_have_separate_round_numbers() -> None:
    """III-C: the aggregation task has its k_agg, the training task its k_train."""
    node = node_of()
    node.handle(1.0, aggregate(1, 9))
    node.handle(1.0, train(4))
    assert (node.aggregation.k_agg, node.training.k_train) == (9, 4)
    node.handle(1.0, train(6))
    assert (node.aggregation.k_agg, node.training.k_train) == (9, 6)


def test_c04_a_sample_pushes_its_models_to_the_next() -> None:
    """III-C: the nodes of S^k activate those of S^(k+1); nobody fetches anything."""
    exchange = Exchange(N, sample_size=S)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(5))
    asked: dict[int, set[NodeId]] = {1: set(hash_order(N, 1)[:S])}
    for _, src, dst, body in exchange.messages:
        if isinstance(body, AggregateRequest):
            assert src in asked[body.ordinal - 1], "only participants of S^k activate a^(k+1)"
        if isinstance(body, TrainRequest):
            asked.setdefault(body.ordinal, set()).add(dst)


def test_c05_nodes_start_working_only_when_a_model_arrives() -> None:
    """III-C: a node need not follow the round being worked on; a model is what makes it work."""
    node = node_of(hash_order(N, 1)[-1])
    for k in range(1, 50):
        effects = node.handle(float(k), Received(1, Ping(k, k)))
        assert [type(body) for _, body in sent(effects)] == [Pong]
        assert len(without(effects, CancelTimer)) == 1
    assert Train(60, "m") in node.handle(60.0, train(60))


def test_c06_a_train_message_starts_the_training() -> None:
    """III-C: a node starts to train on a train message, which holds an aggregated model and a round."""
    assert Train(K, "the model") in node_of().handle(1.0, train(K, "the model"))


def test_c07_a_higher_round_interrupts_a_pending_training() -> None:
    """III-C: if the network got ahead, k > k_train, the pending training is interrupted."""
    node = node_of()
    node.handle(1.0, train(K, "m4"))
    effects = node.handle(2.0, train(K + 2, "m6"))
    assert Train(K + 2, "m6") in effects  # which replaces the training under way
    assert node.handle(3.0, Trained(K, "of the old one")) == []


def test_c08_a_round_being_trained_is_not_started_again() -> None:
    """III-C: the training of round k starts unless the node is already training in round k."""
    node = node_of()
    node.handle(1.0, train(K, "m4"))
    assert node.handle(2.0, train(K, "m4 from another aggregator")) == []


def test_c09_the_trained_model_goes_to_the_next_aggregator() -> None:
    """III-C: when the training is complete, its model goes in an Aggregate message to S^(k+1)."""
    _, _, request = node_with_a_model()
    assert (request.round, request.model) == (K + 1, "trained")


def test_c10_the_aggregator_is_derived_with_the_peer_sampler() -> None:
    """III-C: the aggregator of round k + 1 is found by sampling that round."""
    node, sample, _ = node_with_a_model()
    assert node.training.awaited == max(sample)  # in these tests a higher number has more bandwidth


def test_c11_an_acknowledgement_is_awaited_for_the_ack_timeout() -> None:
    """III-C: against a failing aggregator, the node waits Δt_ack for its Ack."""
    node = online_node(0, 1, ack_timeout_s=777.0)
    node.handle(1.0, train())
    effects = node.handle(9.0, Trained(K, "t"))
    assert SetTimer(ACK, 777.0) in effects


def test_c12_after_the_ack_timeout_other_aggregators_are_tried_until_one_succeeds() -> None:
    """III-C: when the timeout fires the node samples another aggregator, until it succeeds."""
    node, sample, _ = node_with_a_model()
    tried = [node.training.awaited]
    for now in (500.0, 1000.0):
        effects = node.handle(now, TimerFired(ACK))
        search = exchange_of(node, AGGREGATOR)
        assert sent(effects, Ping) == [(candidate, Ping(search, K + 1)) for candidate in sample]
        answer(node, AGGREGATOR, *sample, now=now)
        tried.append(node.training.awaited)
    assert sorted(tried) == sorted(sample), "each time another"
    assert node.handle(1001.0, Received(tried[-1], Ack(K + 1)))[0] == CancelTimer(ACK)
    assert node.handle(1500.0, TimerFired(ACK)) == [], "it succeeded"


def test_c13_an_aggregate_message_activates_the_aggregator() -> None:
    """III-C: the aggregation task starts when an Aggregate message arrives."""
    node = node_of()
    assert not node.aggregation.collecting
    node.handle(1.0, aggregate(1))
    assert node.aggregation.collecting


def test_c14_a_message_is_fresh_ongoing_or_stale() -> None:
    """III-C: the aggregator compares k with k_agg: greater is fresh, equal ongoing, less stale."""
    node = node_of()
    node.handle(1.0, aggregate(1, K))
    assert node.aggregation.k_agg == K, "fresh"
    assert node.handle(2.0, aggregate(2, K)) == [Collect(K, "t", 10)], "ongoing"
    assert sent(node.handle(3.0, aggregate(3, K - 1))) == [(3, Ack(K - 1, used=0))], "stale"
    assert node.aggregation.k_agg == K
    node.handle(4.0, aggregate(4, K + 1))
    assert node.aggregation.k_agg == K + 1, "fresh"


def test_c15_a_fresh_message_starts_the_task_and_its_model_is_kept() -> None:
    """III-C: on a fresh message the aggregator starts the task and stores the model."""
    node = node_of()
    node.handle(1.0, aggregate(1, model="first"))
    assert Aggregate(K, ("first",), (10,)) in node.handle(301.0, TimerFired(AGGREGATION))


def test_c16_models_of_the_ongoing_round_accumulate() -> None:
    """III-C: further models for the ongoing round are accumulated."""
    node = node_of()
    node.handle(1.0, aggregate(1, model="t1"))
    node.handle(2.0, aggregate(2, model="t2"))
    effects = node.handle(301.0, TimerFired(AGGREGATION))
    assert Aggregate(K, ("t1", "t2"), (10, 10)) in effects


def test_c17_stale_messages_are_acknowledged() -> None:
    """III-C: a stale message is answered with an Ack to its sender."""
    node = node_of()
    node.handle(1.0, aggregate(1, K))
    for k in (1, 2, K - 1):
        assert sent(node.handle(2.0, aggregate(3, k))) == [(3, Ack(k, used=0))]


def test_c18_the_stale_sender_makes_no_further_requests() -> None:
    """III-C: that Ack keeps the stale sender from turning to other aggregators."""
    node, _, _ = node_with_a_model()
    node.handle(10.0, Received(node.training.awaited or 0, Ack(K + 1)))
    assert not node.training.busy
    assert node.handle(500.0, TimerFired(ACK)) == []


@pytest.mark.parametrize("gone", [1, 2])
def test_c19_some_of_the_models_suffice(gone: int) -> None:
    """III-C: participants may go offline before their model is sent, so not all s models are needed."""
    exchange = Exchange(20, sample_size=5, success_fraction=0.6)
    exchange.go_online(*range(20))
    exchange.run_until(exchange.has_aggregated(2))
    exchange.run(exchange.now + 2.0)
    training = sorted(exchange.training)
    for node in training[:gone]:
        exchange.crash(node)
    at_s = exchange.now
    exchange.run_until(exchange.has_aggregated(3))
    assert exchange.now - at_s < 20.0, "no timeout was needed"


@pytest.mark.parametrize(
    ("success_fraction", "s", "needed"), [(0.8, 13, 10), (1.0, 13, 13), (0.5, 5, 2), (0.1, 5, 1)]
)
def test_c20_the_success_fraction_says_how_many(success_fraction: float, s: int, needed: int) -> None:
    """III-C: the aggregator waits for ⌊sf · s⌋ models before it completes."""
    node = online_node(0, 20, sample_size=s, success_fraction=success_fraction)
    for count in range(1, needed + 1):
        effects = node.handle(1.0, Received(count, aggregate_request(K, participants=s)))
        assert any(isinstance(effect, Aggregate) for effect in effects) == (count == needed)


def test_c21_a_timeout_guards_against_offline_participants() -> None:
    """III-C: in addition there is an aggregation timeout Δt_agg."""
    node = node_of(aggregation_timeout_s=123.0)
    assert SetTimer(AGGREGATION, 123.0) in node.handle(1.0, aggregate(1))


def test_c22_it_starts_with_the_first_model_and_ends_the_aggregation() -> None:
    """III-C: the timeout starts when the first model of a round arrives, not later ones; then it is over."""
    node = node_of()
    assert SetTimer(AGGREGATION, 300.0) in node.handle(1.0, aggregate(1))
    effects = node.handle(200.0, aggregate(2))
    assert not any(isinstance(effect, SetTimer) for effect in effects), "not started anew"
    effects = node.handle(301.0, TimerFired(AGGREGATION))
    assert [e.round for e in effects if isinstance(e, Aggregate)] == [K]


def test_c23_one_participant_that_gets_its_model_through_is_enough() -> None:
    """III-C: learning goes on as long as one participant pushes its model within Δt_agg."""

    tried: list[NodeId] = []

    def only_one_gets_through(src: NodeId, dst: NodeId, body: Message) -> list[float]:
        if not isinstance(body, AggregateRequest) or body.ordinal != K:
            return [0.1]
        tried.append(src)
        return [0.1] if src == tried[0] else []

    exchange = Exchange(12, sample_size=5, success_fraction=1.0, delays=only_one_gets_through)
    exchange.go_online(*range(12))
    exchange.run_until(exchange.has_aggregated(K + 1), limit_s=500)
    [(aggregator, completed)] = [(n, f) for _, n, f in exchange.of(AggregationCompleted) if f.ordinal == K]
    participants = {n for _, n, f in exchange.of(TrainingStarted) if f.ordinal == K - 1}
    assert (completed.timed_out, completed.participants) == (True, 5)
    assert completed.models == 1 + (aggregator in participants), "its own needs no way"


def test_c24_the_previous_sample_is_told_that_the_round_is_complete() -> None:
    """III-C: the aggregator then sends Acks to the participants of the previous sample.

    It knows those whose models it has; the others hear it when their model arrives.
    """
    node = node_of()
    for src in (1, 2):
        node.handle(1.0, aggregate(src))
    effects = node.handle(2.0, aggregate(3))
    assert sent(effects, Ack) == [(src, Ack(K)) for src in (1, 2, 3)]
    assert sent(node.handle(3.0, aggregate(4))) == [(4, Ack(K, used=0))]


def test_c25_last_the_models_are_aggregated_and_pushed_to_the_next_sample() -> None:
    """III-C: after the Acks, the mean is made and a train message sent to the participants of S^k."""
    sample = hash_order(N, K)[:S]
    node = node_of(hash_order(N, K)[S], success_fraction=0.3)
    effects = node.handle(1.0, aggregate(1))
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Aggregate) > max(
        at for at, effect in enumerate(effects) if getattr(effect, "body", None) == Ack(K)
    )
    effects = node.handle(1.5, Aggregated(K, "mean"))
    effects += answer(node, PARTICIPANTS, *sample, now=1.6)
    assert [(to, push.round, push.model) for to, push in sent(effects, TrainRequest)] == [
        (participant, K, "mean") for participant in sample
    ]


def test_the_process_repeats() -> None:
    """III-C: and so on, round after round."""
    exchange = Exchange(N, sample_size=S)
    exchange.go_online(*range(N))
    exchange.run_until(exchange.has_aggregated(30))
    assert exchange.rounds == list(range(2, 31))
