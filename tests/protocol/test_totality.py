"""`handle` is total: whatever arrives, in whatever state, it never fails and nothing waits in vain."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from plexus.protocol.api import (
    Aggregated,
    BandwidthMeasured,
    CancelTimer,
    Durable,
    Event,
    Expelled,
    Received,
    SetTimer,
    TimerFired,
    TimerKey,
    Train,
    Trained,
    WentOnline,
)
from plexus.protocol.messages import (
    Ack,
    AggregateRequest,
    Joined,
    Left,
    Message,
    Ping,
    Pong,
    TrainRequest,
    ViewReply,
    ViewRequest,
)
from plexus.protocol.quorum import PURPOSES
from plexus.protocol.view import EXPELLED, JOINED, LAST, LEFT, SUSPECTED, Snapshot, View, event_number
from tests.protocol.invariants import check_invariants
from tests.protocol.kit import make_node

N = 4
nodes = st.integers(0, N - 1)
rounds = st.integers(0, 6)
exchanges = st.integers(0, 6)
counters = st.integers(0, 5)
states = st.sampled_from([JOINED, SUSPECTED, LEFT])
events = st.builds(event_number, counters, states) | st.sampled_from([0, LAST, LAST + 1, EXPELLED])
ordinals = st.integers(0, 6)
steps_ahead = st.integers(0, 3)


def view_with(known: list[tuple[int, int]]) -> Snapshot:
    view = View.of(N)
    for node, event in known:
        view.learn(node, min(event, LAST), 7 * node)
    return view.snapshot()


views = st.lists(st.tuples(nodes, events), max_size=N).map(view_with)
sizes = st.integers(0, N)

messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Ping, exchanges, rounds),
    st.builds(Pong, exchanges, rounds, rounds, events),
    st.builds(Joined, counters, st.integers(0, 900)),
    st.builds(Left, counters),
    st.builds(Ack, rounds),
    st.builds(TrainRequest, rounds, steps_ahead, ordinals, sizes, views, st.just("m")),
    st.builds(ViewRequest),
    st.builds(ViewReply, views),
    st.builds(AggregateRequest, rounds, rounds, ordinals, sizes, st.integers(0, 9), views, st.just("t")),
)
timers: st.SearchStrategy[TimerKey] = st.one_of(
    st.sampled_from([(name, 0) for name in ("ack", "aggregation", "look", "readvertise", "start", "view")]),
    st.tuples(st.just("quorum"), st.integers(0, len(PURPOSES) - 1)),
    st.just(("watchdog", 0)),
    st.tuples(st.just("ping"), exchanges),
)
anything: st.SearchStrategy[Event] = st.one_of(
    # A node's own Joined and Left never come back to it; everything else it may send to itself.
    st.builds(Received, nodes, messages).filter(
        lambda event: event.src != 0 or not isinstance(event.body, Joined | Left)
    ),
    st.builds(TimerFired, timers),
    st.builds(Trained, rounds, st.just("t")),
    st.builds(Aggregated, rounds, st.just("m")),
    st.builds(BandwidthMeasured, st.integers(0, 900)),
    st.builds(Expelled, st.integers(1, N - 1)),
    st.just(WentOnline()),
)
steps = st.tuples(st.sampled_from([0.0, 0.1, 2.0, 500.0, 1000.0]), anything)


class Ledger:
    """What the runtime keeps for a node: timers and a training."""

    def __init__(self) -> None:
        self.armed: set[TimerKey] = set()
        self.training: int | None = None

    def record(self, event: Event, effects: list[object]) -> None:
        if isinstance(event, WentOnline):
            self.armed, self.training = set(), None
        elif isinstance(event, TimerFired):
            self.armed.discard(event.key)
        elif isinstance(event, Trained) and event.round == self.training:
            self.training = None
        for effect in effects:
            match effect:
                case SetTimer(key, _):
                    self.armed.add(key)
                case CancelTimer(key):
                    self.armed.discard(key)
                case Train(k, _):
                    self.training = k


@settings(max_examples=200)
@given(
    history=st.lists(steps, max_size=25),
    durable=st.none() | st.builds(Durable, counters, rounds, st.just("m")),
    s=st.integers(1, N + 1),
)
def test_any_sequence_of_events_is_handled_and_leaves_no_work_without_a_wait(
    history: list[tuple[float, Event]], durable: Durable | None, s: int
) -> None:
    """Late timers, answers to questions never asked, results of work never ordered: all of it."""
    node = make_node(0, N, sample_size=s, durable=durable)
    ledger, now = Ledger(), 0.0
    for wait_s, event in [(0.0, WentOnline()), *history]:
        now += wait_s
        ledger.record(event, list(node.handle(now, event)))
        check_invariants(node, ledger.armed, training=ledger.training is not None)
