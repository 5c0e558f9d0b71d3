"""The training task: train, find the aggregator of the next round, wait for its acknowledgement."""

from __future__ import annotations

from unittest.mock import ANY

from plexus.protocol.api import (
    CancelTimer,
    Durable,
    Effect,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Train,
    Trained,
    WentOnline,
)
from plexus.protocol.facts import AggregatorChosen, SampleDerived, TrainingInterrupted, TrainingStarted
from plexus.protocol.messages import Ack, AggregateRequest, Left, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import NOTHING, hash_order, online_node, snapshot_of

ACK_TIMEOUT_S = 450.0
N = 4
K = 5


def train_request(k: int = K, model: str = "m5", participants: int = 2) -> TrainRequest:
    return TrainRequest(k, participants, NOTHING, model)


def outsider(k: int, s: int = 2) -> NodeId:
    """A node that is not in the sample of round k, so that its search is all pings."""
    return hash_order(N, k)[s]


def trained_node(k: int = K) -> PlexusNode:
    """A node outside the next sample that has just finished its training for round k."""
    node = online_node(outsider(k + 1), N)
    node.handle(1.0, Received(3, train_request(k)))
    node.handle(11.0, Trained(k, "t", samples=7))
    return node


def answer(node: PlexusNode, now: float, exchange: int, *nodes: NodeId) -> list[Effect]:
    """Pongs to the pings of one exchange; all effects."""
    return [
        effect
        for src in nodes
        for effect in node.handle(now, Received(src, Pong(exchange, 0, 0, node.membership.counter)))
    ]


def sending_node(k: int = K) -> tuple[PlexusNode, NodeId]:
    """A node that sent its model to the aggregator of round k + 1, and that aggregator."""
    node = trained_node(k)
    effects = answer(node, 11.1, 1, *hash_order(N, k + 1)[:2])
    [(aggregator, _)] = sent(effects, AggregateRequest)
    return node, aggregator


def test_a_train_request_starts_the_training_and_keeps_its_model() -> None:
    node = online_node(0, N)
    effects = node.handle(1.0, Received(3, train_request()))
    assert effects == [
        Train(K, "m5"),
        Report(TrainingStarted(K)),
        Save(Durable(counter=2, round=K, model="m5", view=ANY)),
    ]


def test_a_duplicate_and_an_older_request_change_nothing() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request()))
    assert node.handle(1.1, Received(3, train_request())) == []
    assert node.handle(1.2, Received(2, train_request(K - 1, "m4"))) == []
    assert node.handle(1.3, Received(2, train_request(K, "another m5"))) == []


def test_a_duplicate_request_does_not_disturb_the_search_for_an_aggregator() -> None:
    node = trained_node()
    assert node.handle(11.05, Received(3, train_request())) == []
    effects = answer(node, 11.1, 1, *hash_order(N, K + 1)[:2])
    assert len(sent(effects, AggregateRequest)) == 1


def test_a_newer_round_interrupts_the_training() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request()))
    effects = node.handle(2.0, Received(1, train_request(K + 1, "m6")))
    assert effects == [
        Report(TrainingInterrupted(K)),
        Train(K + 1, "m6"),
        Report(TrainingStarted(K + 1)),
        Save(Durable(counter=2, round=K + 1, model="m6", view=ANY)),
    ]


def test_nothing_of_an_interrupted_training_is_ever_sent() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request()))
    node.handle(2.0, Received(1, train_request(K + 1, "m6")))
    assert node.handle(3.0, Trained(K, "t5")) == []


def test_a_newer_round_interrupts_the_search_for_an_aggregator() -> None:
    node = trained_node()
    effects = node.handle(11.05, Received(1, train_request(K + 1, "m6")))
    assert effects[:3] == [Report(TrainingInterrupted(K)), Train(K + 1, "m6"), Report(TrainingStarted(K + 1))]
    assert CancelTimer(("ping", 1)) in effects
    assert answer(node, 11.1, 1, *hash_order(N, K + 1)[:2]) == []


def test_a_newer_round_interrupts_the_wait_for_an_acknowledgement() -> None:
    node, _ = sending_node()
    effects = node.handle(12.0, Received(1, train_request(K + 1, "m6")))
    assert CancelTimer(("ack", 0)) in effects
    assert node.handle(500.0, TimerFired(("ack", 0))) == []


def test_a_finished_training_pings_the_first_s_candidates_of_the_next_round() -> None:
    node = online_node(outsider(K + 1), N)
    node.handle(1.0, Received(3, train_request()))
    effects = node.handle(11.0, Trained(K, "t", samples=7))
    first = tuple(hash_order(N, K + 1)[:2])
    assert effects == [Send(first, Ping(1, K + 1)), SetTimer(("ping", 1), 2.0)]


def test_the_model_goes_to_the_most_bandwidth_of_those_that_answered() -> None:
    node = trained_node()
    first = hash_order(N, K + 1)[:2]
    effects = answer(node, 11.1, 1, *first)
    best = max(first)
    assert effects == [
        CancelTimer(("ping", 1)),
        Report(SampleDerived(K + 1, AGGREGATOR, tuple(first), 0)),
        Send((best,), AggregateRequest(K + 1, 2, 7, node.membership.view.snapshot(), "t")),
        SetTimer(("ack", 0), ACK_TIMEOUT_S),
        Report(AggregatorChosen(K + 1, best, 1)),
    ]


def test_equal_bandwidth_is_settled_by_hash_order_for_everybody_alike() -> None:
    first = hash_order(N, K + 1)[:3]
    for me in range(N):
        node = online_node(me, N, bandwidths=[100] * N, sample_size=3)
        node.handle(1.0, Received(3, train_request()))
        effects = node.handle(11.0, Trained(K, "t"))
        effects += answer(node, 11.1, 1, *(c for c in first if c != me))
        assert [to for to, _ in sent(effects, AggregateRequest)] == [first[0]]


def test_an_acknowledgement_ends_the_task() -> None:
    node, aggregator = sending_node()
    assert node.handle(20.0, Received(aggregator, Ack(K + 1))) == [CancelTimer(("ack", 0))]
    assert not node.training.busy
    assert node.handle(20.1, Received(aggregator, Ack(K + 1))) == []


def test_an_acknowledgement_of_another_round_does_not_end_it() -> None:
    node, aggregator = sending_node()
    assert node.handle(20.0, Received(aggregator, Ack(K))) == []
    assert node.handle(20.0, Received(aggregator, Ack(K + 2))) == []
    assert node.training.awaited == aggregator


def test_an_acknowledgement_of_another_round_does_not_end_the_search() -> None:
    node = trained_node()
    for k in (K, K + 2):
        assert node.handle(11.05, Received(3, Ack(k))) == []
    assert len(sent(answer(node, 11.1, 1, *hash_order(N, K + 1)[:2]), AggregateRequest)) == 1


def test_an_acknowledgement_during_the_search_for_another_aggregator_ends_the_search() -> None:
    node, aggregator = sending_node()
    node.handle(461.1, TimerFired(("ack", 0)))
    assert node.handle(461.2, Received(aggregator, Ack(K + 1))) == [CancelTimer(("ping", 2))]


def test_without_an_acknowledgement_another_aggregator_is_sampled() -> None:
    node, failed = sending_node()
    first = hash_order(N, K + 1)[:2]
    effects = node.handle(461.1, TimerFired(("ack", 0)))
    assert effects == [
        CancelTimer(("ack", 0)),
        Send(tuple(first), Ping(2, K + 1)),
        SetTimer(("ping", 2), 2.0),
    ]
    effects = answer(node, 461.2, 2, *first)
    [other] = [node for node in first if node != failed]
    assert [to for to, _ in sent(effects, AggregateRequest)] == [other]
    assert AggregatorChosen(K + 1, other, 2) in reported(effects)


def test_when_all_of_the_sample_have_failed_once_the_search_starts_over_with_everybody() -> None:
    node, failed = sending_node()
    first = hash_order(N, K + 1)[:2]
    chosen = []
    for exchange, now in ((2, 500.0), (3, 1000.0), (4, 1500.0)):
        node.handle(now, TimerFired(("ack", 0)))
        effects = answer(node, now, exchange, *first)
        chosen += [fact for fact in reported(effects) if isinstance(fact, AggregatorChosen)]
    [other] = [node for node in first if node != failed]
    assert chosen == [
        AggregatorChosen(K + 1, aggregator, attempt)
        for aggregator, attempt in ((other, 2), (failed, 3), (other, 4))
    ]


def test_a_goodbye_of_the_awaited_aggregator_is_not_waited_out() -> None:
    node, aggregator = sending_node()
    effects = node.handle(12.0, Received(aggregator, Left(3)))
    others = [c for c in hash_order(N, K + 1) if c not in (aggregator, node.me)]
    assert effects[0] == CancelTimer(("ack", 0))
    assert {to for to, _ in sent(effects, Ping)} <= set(others)


def test_a_view_that_says_the_awaited_aggregator_left_is_as_good_as_its_goodbye() -> None:
    for request in (train_request(K), AggregateRequest(3, 2, 1, NOTHING, "t")):
        node, aggregator = sending_node()
        view = snapshot_of(N, (aggregator, 3, False))
        news = type(request)(**{f: getattr(request, f) for f in request.__struct_fields__} | {"view": view})
        effects = node.handle(12.0, Received(1, news))
        assert CancelTimer(("ack", 0)) in effects
        assert sent(effects, Ping)


def test_an_old_goodbye_of_the_awaited_aggregator_is_ignored() -> None:
    node, aggregator = sending_node()
    assert node.handle(12.0, Received(aggregator, Left(0))) == []
    assert node.training.awaited == aggregator


def test_a_candidate_that_answers_and_then_says_goodbye_is_not_chosen() -> None:
    node = trained_node()
    first = hash_order(N, K + 1)[:2]
    best, other = max(first), min(first)
    node.handle(11.1, Received(best, Pong(1, 0, 0, node.membership.counter)))
    node.handle(11.2, Received(best, Left(3)))
    effects = node.handle(11.3, Received(other, Pong(1, 0, 0, node.membership.counter)))
    assert [to for to, _ in sent(effects, AggregateRequest)] == [other]


def test_if_all_that_answered_have_said_goodbye_the_others_are_asked() -> None:
    node = trained_node()
    first, rest = hash_order(N, K + 1)[:2], hash_order(N, K + 1)[2:]
    node.handle(11.1, Received(first[0], Pong(1, 0, 0, node.membership.counter)))
    for left in first:
        node.handle(11.2, Received(left, Left(3)))
    effects = node.handle(
        11.3, Received(first[1], Pong(1, 0, 0, node.membership.counter))
    )  # overtaken by its goodbye
    assert effects == [
        CancelTimer(("ping", 1)),
        Report(SampleDerived(K + 1, AGGREGATOR, tuple(first), 0)),
        Send(tuple(c for c in rest if c != node.me), Ping(2, K + 1)),
        SetTimer(("ping", 2), 2.0),
    ]


def test_back_online_nothing_is_left_of_the_task_but_its_round() -> None:
    node, aggregator = sending_node()
    node.handle(60.0, WentOnline())
    assert (node.training.busy, node.training.trained, node.training.awaited) == (False, None, None)
    assert node.handle(61.0, Received(aggregator, Ack(K + 1))) == []
    assert node.handle(62.0, Received(1, train_request(K))) == []
    assert Train(K + 1, "m6") in node.handle(63.0, Received(1, train_request(K + 1, "m6")))
