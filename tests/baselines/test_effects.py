"""What the simulator does with effects that only baselines have: merging by weight, ending transfers."""

from __future__ import annotations

from plexus.protocol.api import Aggregated, Effect, Event, Merge, Received, Send, StopSending
from plexus.protocol.messages import GlobalModel
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import always_online
from tests.sim.kit import MODEL_BYTES, Session, in_flight_bytes, sessions


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
    moved = in_flight_bytes(runtime)
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


def test_a_world_knows_whether_anybody_ever_leaves() -> None:
    from pathlib import Path

    assert not always_online(3).has_churn
    assert sessions([(0.0, 9.0)], [(0.0, float("inf"))]).has_churn
    assert sessions([(1.0, float("inf"))]).has_churn
    assert sessions([], [(0.0, float("inf"))]).has_churn
    assert not sessions([(0.0, float("inf"))]).has_churn
    assert build_world(TracesSpec(), 5, 1, Path()).availability.has_churn
    assert not build_world(TracesSpec(availability="none"), 5, 1, Path()).availability.has_churn
