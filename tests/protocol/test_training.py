"""The training task: train, find the aggregator of the next round, wait for its acknowledgement."""

from __future__ import annotations

from unittest.mock import ANY

from plexus.protocol.api import (
    CancelTimer,
    Durable,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Train,
    Trained,
)
from plexus.protocol.facts import AggregatorChosen, SampleDerived, TrainingInterrupted, TrainingStarted
from plexus.protocol.messages import Ack, AggregateRequest, Joined, Left, NodeId, Ping
from plexus.protocol.plexus import AGGREGATOR, PlexusNode
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    aggregate_request,
    answer,
    asked,
    come_online,
    exchange_of,
    hash_order,
    online_node,
    pong,
    snapshot_of,
    train_request,
    without_probes,
)

ACK_TIMEOUT_S = 450.0
LOOK_S = ACK_TIMEOUT_S / 15
NO_MORE_WAITING = [CancelTimer(("ack", 0)), CancelTimer(("look", 0))]
N = 4
K = 5


def outsider(k: int, s: int = 2) -> NodeId:
    """A node that is not in the sample of round k, so that its search is all pings."""
    return hash_order(N, k)[s]


def trained_node(k: int = K) -> PlexusNode:
    """A node outside the next sample that has just finished its training for round k."""
    node = online_node(outsider(k + 1), N)
    node.handle(1.0, Received(3, train_request(k, "m5")))
    answer_probes(node)
    node.handle(11.0, Trained(k, "t", samples=7))
    return node


def answer_probes(node: PlexusNode) -> None:
    """Whoever it pinged when its training began is there."""
    for exchange, search in list(node.sampler.exchanges.items()):
        for probed in search.sample.waiting:
            pong(node, probed, exchange, 1.1)


def sending_node(k: int = K) -> tuple[PlexusNode, NodeId]:
    """A node that sent its model to the aggregator of round k + 1, and that aggregator."""
    node = trained_node(k)
    effects = answer(node, AGGREGATOR, *hash_order(N, k + 1)[:2], now=11.1)
    [(aggregator, _)] = sent(effects, AggregateRequest)
    return node, aggregator


def test_a_train_request_starts_the_training_and_keeps_its_model() -> None:
    node = online_node(0, N)
    effects = node.handle(1.0, Received(3, train_request(K, "m5")))
    assert without_probes(node, effects) == [
        Train(K, "m5"),
        Report(TrainingStarted(K, K)),
        Save(Durable(counter=2, round=K, model="m5", view=ANY, ordinal=K)),
    ]


def test_a_duplicate_and_an_older_request_change_nothing() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request(K, "m5")))
    assert node.handle(1.1, Received(3, train_request(K, "m5"))) == []
    assert node.handle(1.2, Received(2, train_request(K - 1, "m4"))) == []
    assert node.handle(1.3, Received(2, train_request(K, "another m5"))) == []


def test_a_duplicate_request_does_not_disturb_the_search_for_an_aggregator() -> None:
    node = trained_node()
    assert node.handle(11.05, Received(3, train_request(K, "m5"))) == []
    effects = answer(node, AGGREGATOR, *hash_order(N, K + 1)[:2], now=11.1)
    assert len(sent(effects, AggregateRequest)) == 1


def test_a_newer_round_interrupts_the_training() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request(K, "m5")))
    effects = node.handle(2.0, Received(1, train_request(K + 1, "m6")))
    assert without_probes(node, effects) == [
        Report(TrainingInterrupted(K, K)),
        Train(K + 1, "m6"),
        Report(TrainingStarted(K + 1, K + 1)),
        Save(Durable(counter=2, round=K + 1, model="m6", view=ANY, ordinal=K + 1)),
    ]


def test_nothing_of_an_interrupted_training_is_ever_sent() -> None:
    node = online_node(0, N)
    node.handle(1.0, Received(3, train_request(K, "m5")))
    node.handle(2.0, Received(1, train_request(K + 1, "m6")))
    assert node.handle(3.0, Trained(K, "t5")) == []


def test_a_newer_round_interrupts_the_search_for_an_aggregator() -> None:
    node = trained_node()
    search = exchange_of(node, AGGREGATOR)
    effects = node.handle(11.05, Received(1, train_request(K + 1, "m6")))
    assert effects[:3] == [
        Report(TrainingInterrupted(K, K)),
        Train(K + 1, "m6"),
        Report(TrainingStarted(K + 1, K + 1)),
    ]
    assert CancelTimer(("ping", search)) in effects
    assert [pong(node, c, search, 11.1) for c in hash_order(N, K + 1)[:2]] == [[], []]


def test_a_newer_round_interrupts_the_wait_for_an_acknowledgement() -> None:
    node, _ = sending_node()
    effects = node.handle(12.0, Received(1, train_request(K + 1, "m6")))
    assert CancelTimer(("ack", 0)) in effects
    assert CancelTimer(("look", 0)) in effects
    assert node.handle(500.0, TimerFired(("ack", 0))) == []


def test_a_finished_training_pings_the_first_s_candidates_of_the_next_round() -> None:
    node = online_node(outsider(K + 1), N)
    node.handle(1.0, Received(3, train_request(K, "m5")))
    effects = node.handle(11.0, Trained(K, "t", samples=7))
    first = tuple(hash_order(N, K + 1)[:2])
    search = exchange_of(node, AGGREGATOR)
    assert effects == [Send(first, Ping(search, K + 1)), SetTimer(("ping", search), 1.0)]


def test_the_model_goes_to_the_most_bandwidth_of_those_that_answered() -> None:
    node = trained_node()
    first = hash_order(N, K + 1)[:2]
    search = exchange_of(node, AGGREGATOR)
    effects = answer(node, AGGREGATOR, *first, now=11.1)
    best = max(first)
    assert effects == [
        CancelTimer(("ping", search)),
        Report(SampleDerived(K + 1, K + 1, AGGREGATOR, tuple(first), 0)),
        Send((best,), AggregateRequest(K + 1, K, K + 1, 2, 7, node.membership.view.snapshot(), "t")),
        SetTimer(("ack", 0), ACK_TIMEOUT_S),
        SetTimer(("look", 0), LOOK_S),
        Report(AggregatorChosen(K + 1, K + 1, best, 1)),
    ]


def test_equal_bandwidth_is_settled_by_hash_order_for_everybody_alike() -> None:
    first = hash_order(N, K + 1)[:3]
    for me in range(N):
        node = online_node(me, N, bandwidths=[100] * N, sample_size=3)
        node.handle(1.0, Received(3, train_request(K, "m5")))
        effects = node.handle(11.0, Trained(K, "t"))
        effects += answer(node, AGGREGATOR, *(c for c in first if c != me), now=11.1)
        assert [to for to, _ in sent(effects, AggregateRequest)] == [first[0]]


def test_an_acknowledgement_ends_the_task() -> None:
    node, aggregator = sending_node()
    assert node.handle(20.0, Received(aggregator, Ack(K + 1))) == NO_MORE_WAITING
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
    assert len(sent(answer(node, AGGREGATOR, *hash_order(N, K + 1)[:2], now=11.1), AggregateRequest)) == 1


def test_an_acknowledgement_during_the_search_for_another_aggregator_ends_the_search() -> None:
    node, aggregator = sending_node()
    node.handle(461.1, TimerFired(("ack", 0)))
    search = exchange_of(node, AGGREGATOR)
    assert node.handle(461.2, Received(aggregator, Ack(K + 1))) == [CancelTimer(("ping", search))]


def test_without_an_acknowledgement_another_aggregator_is_sampled() -> None:
    node, failed = sending_node()
    first = hash_order(N, K + 1)[:2]
    effects = node.handle(461.1, TimerFired(("ack", 0)))
    search = exchange_of(node, AGGREGATOR)
    assert effects == [
        *NO_MORE_WAITING,
        Send(tuple(first), Ping(search, K + 1)),
        SetTimer(("ping", search), 1.0),
    ]
    effects = answer(node, AGGREGATOR, *first, now=461.2)
    [other] = [node for node in first if node != failed]
    assert [to for to, _ in sent(effects, AggregateRequest)] == [other]
    assert AggregatorChosen(K + 1, K + 1, other, 2) in reported(effects)


def test_when_all_of_the_sample_have_failed_once_the_search_starts_over_with_everybody() -> None:
    node, failed = sending_node()
    first = hash_order(N, K + 1)[:2]
    chosen = []
    for now in (500.0, 1000.0, 1500.0):
        node.handle(now, TimerFired(("ack", 0)))
        effects = answer(node, AGGREGATOR, *first, now=now)
        chosen += [fact for fact in reported(effects) if isinstance(fact, AggregatorChosen)]
    [other] = [node for node in first if node != failed]
    assert chosen == [
        AggregatorChosen(K + 1, K + 1, aggregator, attempt)
        for aggregator, attempt in ((other, 2), (failed, 3), (other, 4))
    ]


def test_a_goodbye_of_the_awaited_aggregator_is_not_waited_out() -> None:
    node, aggregator = sending_node()
    effects = node.handle(12.0, Received(aggregator, Left(3)))
    others = [c for c in hash_order(N, K + 1) if c not in (aggregator, node.me)]
    assert effects[0] == CancelTimer(("ack", 0))
    assert {to for to, _ in sent(effects, Ping)} <= set(others)


def test_a_view_that_says_the_awaited_aggregator_left_is_as_good_as_its_goodbye() -> None:
    for request in (train_request(K), aggregate_request(3)):
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
    answer(node, AGGREGATOR, best, now=11.1)
    node.handle(11.2, Received(best, Left(3)))
    effects = answer(node, AGGREGATOR, other, now=11.3)
    assert [to for to, _ in sent(effects, AggregateRequest)] == [other]


def test_if_all_that_answered_have_said_goodbye_the_others_are_asked() -> None:
    node = trained_node()
    first, rest = hash_order(N, K + 1)[:2], hash_order(N, K + 1)[2:]
    search = exchange_of(node, AGGREGATOR)
    answer(node, AGGREGATOR, first[0], now=11.1)
    for left in first:
        node.handle(11.2, Received(left, Left(3)))
    effects = answer(node, AGGREGATOR, first[1], now=11.3)  # overtaken by its goodbye
    again = exchange_of(node, AGGREGATOR)
    assert effects == [
        CancelTimer(("ping", search)),
        Report(SampleDerived(K + 1, K + 1, AGGREGATOR, tuple(first), 0)),
        Send(tuple(c for c in rest if c != node.me), Ping(again, K + 1)),
        SetTimer(("ping", again), 1.0),
    ]


def test_back_online_nothing_is_left_of_the_task_but_its_round() -> None:
    node, aggregator = sending_node()
    come_online(node, 60.0)
    assert (node.training.busy, node.training.trained, node.training.awaited) == (False, None, None)
    assert node.handle(61.0, Received(aggregator, Ack(K + 1))) == []
    assert node.handle(62.0, Received(1, train_request(K))) == []
    assert Train(K + 1, "m6") in node.handle(63.0, Received(1, train_request(K + 1, "m6")))


def test_an_aggregator_is_sought_among_those_whom_the_request_knew_for_all_were_told_the_same() -> None:
    """Of who joined since, other participants may not know: they would choose another."""
    order = hash_order(N, K + 1)
    first, *known = order[:3]
    node = online_node(order[3], N)
    view = snapshot_of(N, (first, 2, False), *((other, 1, True) for other in known))
    node.handle(1.0, Received(3, train_request(K, view=view)))
    node.handle(2.0, Received(first, Joined(3, 900)))
    effects = node.handle(11.0, Trained(K, "t"))
    assert asked(node, effects, AGGREGATOR) == known


def test_if_the_request_knew_nobody_who_is_online_anybody_is_asked() -> None:
    order = hash_order(N, K + 1)
    node = online_node(order[3], N)
    view = snapshot_of(N, *((other, 2, False) for other in order[:3]))
    node.handle(1.0, Received(3, train_request(K, view=view)))
    for back in order[:3]:
        node.handle(2.0, Received(back, Joined(3, 900)))
    effects = node.handle(11.0, Trained(K, "t"))
    assert asked(node, effects, AGGREGATOR) == order[:2]
