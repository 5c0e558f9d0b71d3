"""The aggregation task: fresh, ongoing, stale; enough models or the timeout; acknowledge, then push."""

from __future__ import annotations

from plexus.protocol.api import Aggregated, Received, TimerFired, WentOnline
from plexus.protocol.messages import Ack, AggregateRequest, Pong, TrainRequest
from plexus.protocol.plexus import PlexusNode
from tests.protocol.kit import NOTHING, online_node, sent


def trained_model(k: int, model: str = "t", participants: int = 2) -> AggregateRequest:
    """The message of a participant of round k - 1 to the aggregator of round k."""
    return AggregateRequest(k, participants, 10, NOTHING, model)


def aggregating(node: PlexusNode, k: int, now: float = 1.0) -> PlexusNode:
    """Brings `node` to the point where it has asked for the mean of round k."""
    node.handle(now, Received(1, trained_model(k, participants=1)))
    return node


def test_the_push_carries_the_model_of_its_round_even_if_a_newer_one_arrived_meanwhile() -> None:
    """Two aggregators of round 5, because of inconsistent views; the other one is a round ahead."""
    node = aggregating(online_node(0, 3), 5)
    node.handle(1.0, Aggregated(5, "m5"))
    node.handle(1.1, Received(1, TrainRequest(6, 2, NOTHING, "m6")))
    effects = node.handle(3.0, TimerFired(("ping", 1)))
    effects += node.handle(3.1, Received(1, Pong(2, 6, 6)))
    effects += node.handle(3.1, Received(2, Pong(2, 6, 6)))
    assert {(push.round, push.model) for _, push in sent(effects, TrainRequest)} == {(5, "m5")}


def test_a_round_that_a_crash_cut_short_is_fresh_again_and_never_acknowledged_as_done() -> None:
    node = online_node(0, 4, success_fraction=1.0)
    node.handle(1.0, Received(1, trained_model(5, "t1")))
    node.handle(60.0, WentOnline())  # after a crash: the model of node 1 is lost
    effects = node.handle(61.0, Received(2, trained_model(5, "t2")))
    assert sent(effects, Ack) == []
    assert node.aggregation.collecting
