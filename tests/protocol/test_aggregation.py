"""The aggregation task: fresh, ongoing, stale; enough models or the timeout; acknowledge, then push."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    CancelTimer,
    Collect,
    Durable,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
)
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.messages import Ack, AggregateRequest, Joined, Ping, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PARTICIPANTS
from plexus.testing.exchange import reported, sent
from tests.protocol.kit import (
    aggregate_request,
    answer,
    come_online,
    exchange_of,
    hash_order,
    online_node,
    train_request,
)

K = 5
TIMEOUT = TimerFired(("aggregation", 0))


def trained_model(k: int, model: str = "t", participants: int = 2) -> AggregateRequest:
    """The message of a participant of round k - 1 to the aggregator of round k."""
    return aggregate_request(k, model, participants, samples=10)


def collecting_node(participants: int = 3, **options: float) -> PlexusNode:
    """An aggregator that has one model of several for round K, from node 1."""
    node = online_node(0, 6, **{"success_fraction": 1.0} | options)
    node.handle(1.0, Received(1, trained_model(K, "t1", participants)))
    return node


def aggregating_node(me: int = 0, n: int = 6) -> PlexusNode:
    """An aggregator that has acknowledged round K and waits for the mean."""
    node = online_node(me, n)
    node.handle(1.0, Received(1, trained_model(K, participants=1)))
    return node


def test_a_fresh_message_starts_the_task_and_its_timeout() -> None:
    node = online_node(0, 6, success_fraction=1.0)
    effects = node.handle(1.0, Received(1, trained_model(K, "t1")))
    assert effects == [SetTimer(("aggregation", 0), 300.0), Collect(K, "t1", 10)]
    assert node.aggregation.k_agg == K


def test_enough_models_are_acknowledged_then_aggregated() -> None:
    node = collecting_node(participants=3)
    assert node.handle(2.0, Received(2, trained_model(K, "t2", 3))) == [Collect(K, "t2", 10)]
    assert node.handle(3.0, Received(3, trained_model(K, "t3", 3))) == [
        Collect(K, "t3", 10),
        CancelTimer(("aggregation", 0)),
        Send((1, 2, 3), Ack(K)),
        Aggregate(K, ("t1", "t2", "t3"), (10, 10, 10)),
    ]


def test_one_model_of_one_participant_is_enough_at_once() -> None:
    node = online_node(0, 6)
    assert node.handle(1.0, Received(1, trained_model(K, "t1", participants=1))) == [
        SetTimer(("aggregation", 0), 300.0),
        Collect(K, "t1", 10),
        CancelTimer(("aggregation", 0)),
        Send((1,), Ack(K)),
        Aggregate(K, ("t1",), (10,)),
    ]


@pytest.mark.parametrize(("signed", "waits"), [(False, False), (True, True)])
def test_of_two_who_may_lie_one_model_is_not_enough(signed: bool, waits: bool) -> None:
    """With the paper's values it is: ⌊0.8 · 2⌋."""
    node = online_node(0, 2, signed_views=signed)
    node.handle(1.0, Received(0, trained_model(K, "t0", participants=2)))
    assert node.aggregation.collecting is waits
    assert Aggregate(K, ("t0",), (10,)) in node.handle(301.0, TIMEOUT) or not waits


def test_a_duplicate_does_not_count_twice() -> None:
    node = collecting_node(participants=2)
    assert node.handle(1.5, Received(1, trained_model(K, "t1 again"))) == []
    effects = node.handle(2.0, Received(2, trained_model(K, "t2")))
    assert Aggregate(K, ("t1", "t2"), (10, 10)) in effects


def test_if_participants_disagree_on_their_number_the_largest_counts() -> None:
    """Two aggregators pushed the round before to samples of different size."""
    node = collecting_node(participants=2)
    node.handle(2.0, Received(2, trained_model(K, "t2", participants=4)))
    node.handle(2.0, Received(3, trained_model(K, "t3", participants=2)))
    assert node.aggregation.collecting
    node.handle(2.0, Received(4, trained_model(K, "t4", participants=4)))
    assert not node.aggregation.collecting


def test_at_the_timeout_one_model_suffices() -> None:
    node = collecting_node(participants=3)
    assert node.handle(301.0, TIMEOUT) == [Send((1,), Ack(K)), Aggregate(K, ("t1",), (10,))]
    effects = node.handle(301.0, Aggregated(K, "m5"))
    assert reported(effects)[0] == AggregationCompleted(K, K, "m5", 1, 3, timed_out=True, waited_s=300.0)


def test_a_round_after_one_that_timed_out_is_not_said_to_have_timed_out() -> None:
    node = collecting_node(participants=3)
    node.handle(301.0, TIMEOUT)
    node.handle(301.0, Aggregated(K, "m5"))
    node.handle(400.0, Received(2, trained_model(K + 1, "t2", participants=1)))
    effects = node.handle(400.0, Aggregated(K + 1, "m6"))
    assert reported(effects)[0] == AggregationCompleted(
        K + 1, K + 1, "m6", 1, 1, timed_out=False, waited_s=0.0
    )


def test_an_aggregator_in_its_own_sample_saves_the_model_once() -> None:
    node = aggregating_node(0, 1)
    effects = node.handle(1.0, Aggregated(K, "m5"))
    effects += node.handle(1.0, Received(0, sent(effects, TrainRequest)[0][1]))
    assert [effect for effect in effects if isinstance(effect, Save)] == [Save(Durable(2, K, "m5", ANY, K))]


def test_the_mean_is_kept_and_pushed_to_the_participants_of_the_round() -> None:
    first = hash_order(6, K)[:2]
    node = aggregating_node(me=hash_order(6, K)[-1])
    assert node.handle(1.5, Aggregated(K, "m5")) == [
        Report(AggregationCompleted(K, K, "m5", 1, 1, timed_out=False, waited_s=0.5)),
        Save(Durable(2, K, "m5", ANY, K)),
        Send(tuple(first), Ping(2, K)),
        SetTimer(("ping", 2), 1.0),
    ]


def test_a_model_that_comes_after_the_round_is_complete_is_acknowledged_and_ignored() -> None:
    node = aggregating_node()
    assert node.handle(2.0, Received(4, trained_model(K, "late"))) == [Send((4,), Ack(K, used=0))]
    node.handle(2.0, Aggregated(K, "m5"))
    assert node.handle(3.0, Received(3, trained_model(K, "later"))) == [Send((3,), Ack(K, used=0))]


def test_a_stale_model_is_acknowledged_and_ignored() -> None:
    node = collecting_node()
    assert node.handle(2.0, Received(4, trained_model(K - 1))) == [Send((4,), Ack(K - 1, used=0))]
    assert node.aggregation.k_agg == K


def test_a_fresh_round_releases_those_who_wait_for_the_one_before() -> None:
    node = collecting_node(participants=3)
    effects = node.handle(2.0, Received(4, trained_model(K + 1, "t4", 3)))
    told, *effects = effects
    assert isinstance(told, Send) and isinstance(told.body, Joined)
    assert effects == [
        CancelTimer(("aggregation", 0)),
        Send((1,), Ack(K, used=0)),
        SetTimer(("aggregation", 0), 300.0),
        Collect(K + 1, "t4", 10),
    ]
    effects = node.handle(302.0, TIMEOUT)
    assert Aggregate(K + 1, ("t4",), (10,)) in effects


def test_the_mean_of_a_round_left_behind_is_not_pushed() -> None:
    node = aggregating_node()
    node.handle(1.1, Received(4, trained_model(K + 1, "t4", 3)))
    assert node.handle(1.2, Aggregated(K, "m5")) == []


def test_a_second_mean_of_a_round_is_not_pushed_again() -> None:
    node = aggregating_node()
    node.handle(1.0, Aggregated(K, "m5"))
    assert node.handle(1.0, Aggregated(K, "m5")) == []


def test_a_mean_nobody_asked_for_does_not_end_the_collecting() -> None:
    node = aggregating_node()
    node.handle(1.1, Received(4, trained_model(K + 1, "t4", 3)))
    assert node.handle(1.2, Aggregated(K + 1, "m6")) == []
    assert node.aggregation.collecting


def test_a_fresh_round_gives_up_the_search_for_participants_of_the_one_before() -> None:
    node = aggregating_node()
    node.handle(1.0, Aggregated(K, "m5"))
    search = exchange_of(node, PARTICIPANTS)
    effects = node.handle(1.1, Received(4, trained_model(K + 1, "t4", 3)))
    assert CancelTimer(("ping", search)) in effects


def test_an_aggregate_that_was_overtaken_while_its_sample_was_sought_is_not_pushed() -> None:
    """Two aggregators of round 5, because of inconsistent views; the other one is a round ahead."""
    node = aggregating_node(0, 3)
    node.handle(1.0, Aggregated(K, "m5"))
    node.handle(1.1, Received(1, train_request(K + 1, "m6")))
    effects = answer(node, PARTICIPANTS, *(other for other in hash_order(3, K)[:2] if other != 0), now=3.1)
    assert not sent(effects, TrainRequest)


def test_training_and_aggregating_do_not_disturb_each_other() -> None:
    node = collecting_node(participants=2)
    node.handle(1.5, Received(4, train_request(K, "m5")))
    assert node.training.busy
    assert node.aggregation.collecting
    effects = node.handle(2.0, Received(2, trained_model(K, "t2")))
    assert Aggregate(K, ("t1", "t2"), (10, 10)) in effects
    assert node.training.busy


def test_a_round_that_a_crash_cut_short_is_fresh_again_and_never_acknowledged_as_done() -> None:
    node = collecting_node(participants=2)
    come_online(node, 60.0)  # after a crash: the model of node 1 is lost
    effects = node.handle(61.0, Received(2, trained_model(K, "t2")))
    assert effects == [SetTimer(("aggregation", 0), 300.0), Collect(K, "t2", 10)]
    assert node.aggregation.collecting


def test_after_a_crash_a_round_whose_model_the_node_holds_is_done() -> None:
    node = aggregating_node()
    node.handle(1.0, Aggregated(K, "m5"))
    come_online(node, 60.0)
    assert node.handle(61.0, Received(2, trained_model(K, "t2"))) == [Send((2,), Ack(K, used=0))]


def test_an_aggregator_that_is_overtaken_tells_others_that_it_is_there() -> None:
    """Somebody completed the round without the models that came here: it does not know of this node,
    and whoever does would send it model after model in vain."""
    node = collecting_node()
    effects = node.handle(2.0, Received(1, trained_model(K + 1)))
    told = [to for to, joined in sent(effects, Joined)]
    assert len(set(told)) == node.parameters.readvertise_to
    assert 0 not in told


def test_an_aggregator_that_has_completed_its_round_is_not_overtaken() -> None:
    node = aggregating_node()
    node.handle(1.0, Aggregated(K, "m"))
    assert sent(node.handle(2.0, Received(1, trained_model(K + 1))), Joined) == []
