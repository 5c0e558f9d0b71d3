"""What the simulator does with effects that only baselines have: merging by weight, ending transfers."""

from __future__ import annotations

import pytest
import torch

from plexus.learn.aggregation import mean, weighted_mean
from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import LazyModels
from plexus.learn.tasks import create_task
from plexus.protocol.api import Aggregated, Effect, Event, Merge, Received, Send, StopSending
from plexus.protocol.messages import GlobalModel
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import always_online
from tests.sim.kit import MODEL_BYTES, Session, sessions


class Scripted:
    """A node that does what it is told and remembers what happened to it."""

    def __init__(self) -> None:
        self.next: list[Effect] = []
        self.events: list[Event] = []

    def handle(self, now: float, event: Event) -> list[Effect]:
        self.events.append(event)
        effects, self.next = self.next, []
        return effects


def test_stopping_ends_what_the_node_sends_and_nothing_else() -> None:
    session = Session(3)
    nodes = [Scripted() for _ in range(3)]
    session.runtime.nodes = nodes
    session.run(0.0)
    runtime = session.runtime
    for src, to in ((0, (1, 2)), (1, (0,))):
        runtime._perform(src, [Send(to, GlobalModel(1, f"of {src}"))])
    session.run(0.01)
    runtime._perform(0, [StopSending()])
    moved = runtime.network.in_flight_bytes()
    assert 0 < moved < MODEL_BYTES
    assert 0 < runtime.accounts.cut_bytes < MODEL_BYTES
    session.run(60.0)
    arrived = [[e.src for e in node.events if isinstance(e, Received)] for node in nodes]
    assert arrived == [[1], [], []]
    runtime._perform(0, [StopSending()])  # nothing to stop is fine
    sent = sum(runtime.accounts.sent_bytes)
    assert sent == sum(runtime.accounts.received_bytes) + runtime.accounts.cut_bytes


def test_what_a_stopped_transfer_frees_goes_to_the_others() -> None:
    arrivals = []
    for stop in (False, True):
        session = Session(3)
        session.runtime.nodes = [Scripted() for _ in range(3)]
        session.run(0.0)
        for src in (0, 1):
            session.runtime._perform(src, [Send((2,), GlobalModel(1, "m"))])
        session.run(0.01)
        if stop:
            session.runtime._perform(0, [StopSending()])
        now_s = 0.01
        while not session.runtime.accounts.received_bytes[2]:
            now_s += 0.001
            session.run(now_s)
        arrivals.append(now_s)
    assert arrivals[1] < arrivals[0]


def test_a_merge_is_answered_at_once() -> None:
    session = Session(1)
    (node,) = session.runtime.nodes = [Scripted()]
    session.run(5.0)
    session.runtime._perform(0, [Merge(3, ("a", "b"), (2, 1))])
    session.run(5.0)
    assert node.events[-1] == Aggregated(3, ("merged", (("a", 2), ("b", 1))))


def test_equal_weights_give_the_same_bits_as_the_mean() -> None:
    vectors = [torch.rand(1000) for _ in range(7)]
    assert torch.equal(weighted_mean(vectors, [1] * 7), mean(vectors, [3] * 7))
    assert weighted_mean([torch.tensor([1.0]), torch.tensor([5.0])], [3, 1]).tolist() == [2.0]


@pytest.mark.parametrize("rule", [mean, weighted_mean])
def test_merging_lazily_ignores_the_rule_of_aggregation(rule) -> None:  # type: ignore[no-untyped-def]
    task = create_task("digits", nodes=4, seed=1)
    models = LazyModels(task, InlineEngine(task), aggregation=rule)
    parts = [models.train(models.initial(), node, 1) for node in range(2)]
    merged = models.merge(parts, [3, 1])
    assert models.computed == 0
    assert models.merge(parts, [3, 1]) is merged, "whoever asks for the same gets the same"
    assert models.merge(parts[::-1], [3, 1]) is not merged
    key = next(iter(models.weights(merged)))
    expected = (3 * models.weights(parts[0])[key] + models.weights(parts[1])[key]) / 4
    torch.testing.assert_close(models.weights(merged)[key], expected)
    with pytest.raises(ValueError, match="2 models and 1 weights to merge"):
        models.merge(parts, [1])


def test_a_world_knows_whether_anybody_ever_leaves() -> None:
    from pathlib import Path

    assert not always_online(3).has_churn
    assert sessions([(0.0, 9.0)], [(0.0, float("inf"))]).has_churn
    assert sessions([(1.0, float("inf"))]).has_churn
    assert sessions([], [(0.0, float("inf"))]).has_churn
    assert not sessions([(0.0, float("inf"))]).has_churn
    assert build_world(TracesSpec(), 5, 1, Path()).availability.has_churn
    assert not build_world(TracesSpec(availability="none"), 5, 1, Path()).availability.has_churn
