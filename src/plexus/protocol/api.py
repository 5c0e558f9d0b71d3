"""The contract between a protocol and the runtime that performs its effects.

A node is a synchronous state machine: one event in, a list of effects out. Handlers run to
completion and are never re-entered. Messages may be lost, delayed, duplicated and reordered. Once a
node goes offline the runtime discards its timers, transfers and training; nothing of them arrives.
A crash is silence: the node is told nothing, and finds out by its next `WentOnline`.

A runtime performs and does not think. What it knows and the node cannot see it says as an event
(`Undelivered`, `PeerLost`, `Misbehaved`, `Expelled`); what follows from that is for the node to decide.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from plexus.protocol.messages import Model, NodeId

TimerKey: TypeAlias = tuple[str, int]
"""What is waited for, and a number that tells waits of the same kind apart."""


class Change(Struct, frozen=True, gc=False):
    """What a training changed. Whoever sends it sends the difference, which is as large as a model."""

    trained: Model
    base: Model
    """What the training began with."""


class Event(Struct, frozen=True, gc=False):
    """Something that happened to a node."""


class Received(Event, frozen=True):
    """A message arrived."""

    src: NodeId
    body: Any
    size_bytes: int = 0


class Offered(Event, frozen=True):
    """A model is on its way here, and the message that it belongs to has come ahead of it. `Received` follows
    with the model, unless the node holds the message obsolete or the transfer breaks off. Not every runtime
    tells."""

    src: NodeId
    body: Any


class TimerFired(Event, frozen=True):
    """The timer `key` ran out. A timer that was cancelled or set anew does not fire."""

    key: TimerKey


class Trained(Event, frozen=True):
    """The training asked for by `Train` is finished."""

    round: int
    model: Model
    samples: int = 1


class Aggregated(Event, frozen=True):
    """The aggregation asked for by `Aggregate` or `Merge` is finished."""

    round: int
    model: Model


class Measured(Event, frozen=True):
    """The model of `round` was measured. Not every model is, and where the end of a session does not depend
    on it, nobody tells the node."""

    round: int
    ordinal: int
    model: Model
    score: float
    """The larger the better."""
    metrics: dict[str, float]


class WentOnline(Event, frozen=True):
    """The device is available: after a start, a leave or a crash."""


class BandwidthMeasured(Event, frozen=True):
    """The device's bandwidth turned out to be another than the node advertised."""

    bandwidth_bytes_per_s: int


class Undelivered(Event, frozen=True):
    """The runtime knows that `body` did not reach `to`. Not every loss is known: silence stays possible.
    If `to` is the node itself, what was offered to it does not come."""

    to: NodeId
    body: Any
    declined: bool = False
    """`to` is there, and had no use for it."""


class PeerLost(Event, frozen=True):
    """The connection with `node` broke: it may be gone, or just the connection."""

    node: NodeId


class Misbehaved(Event, frozen=True):
    """`node` sent something that no honest one sends, and that the runtime did not let pass: no message of
    the protocol, or a model that cannot be used."""

    node: NodeId


class Expelled(Event, frozen=True):
    """`node` is no longer admitted to the session: nothing arrives from it, and it never comes back."""

    node: NodeId


class WentOffline(Event, frozen=True):
    """Last call before a graceful leave: effects returned now are the last to be performed."""


IGNORABLE = (Offered, Undelivered, PeerLost, Misbehaved, Expelled, BandwidthMeasured, Measured)
"""Events about which a protocol may have nothing to decide."""


class Effect(Struct, frozen=True, gc=False):
    """Something a node wants done."""


class Send(Effect, frozen=True):
    """Send `body` to each of `to`. A node may send to itself; that costs nothing."""

    to: tuple[NodeId, ...]
    body: Any


class SetTimer(Effect, frozen=True):
    """Wake me with `TimerFired(key)` in `delay_s`; replaces a timer of the same key."""

    key: TimerKey
    delay_s: float


class CancelTimer(Effect, frozen=True):
    """Forget the timer `key`, if there is one."""

    key: TimerKey


class Train(Effect, frozen=True):
    """Train `model` on the node's own data, then `Trained`. Interrupts a training under way."""

    round: int
    """Its ordinal: what is drawn at random for a training depends on it."""
    model: Model


class Collect(Effect, frozen=True):
    """Keep the received `model` for the `Aggregate` of `round`; `samples` examples are behind it. A runtime
    may add it to a running sum at once: what is collected is not looked at otherwise."""

    round: int
    model: Model
    samples: int
    is_change: bool = False
    """`model` is one of the `changes` of that `Aggregate`."""


class Aggregate(Effect, frozen=True):
    """Combine `models` into one, then `Aggregated`. `samples[i]` examples are behind `models[i]`.

    Each of `changes` (a `Change`, or what has come of one) moves the result by as much as one model more
    would: the mean of n models and m changes is Σ models / n + Σ changes / (n + m)."""

    round: int
    models: tuple[Model, ...]
    samples: tuple[int, ...]
    changes: tuple[Model, ...] = ()
    change_samples: tuple[int, ...] = ()


class Merge(Effect, frozen=True):
    """Combine `models` into one, then `Aggregated`. `models[i]` counts `weights[i]`, which the protocol
    itself decides: the session's rule of aggregation has no say, and the weights need not sum to 1."""

    round: int
    models: tuple[Model, ...]
    weights: tuple[float, ...]


class StopSending(Effect, frozen=True):
    """End my transfers under way: those that are not complete by now never arrive."""


class Save(Effect, frozen=True):
    """Make this state survive a crash before performing the effects that follow."""

    state: Durable


class Report(Effect, frozen=True):
    """Tell whoever observes the run (metrics, logs, tests); never affects the protocol."""

    fact: Any


class Durable(Struct, frozen=True):
    """What a node must find again after a crash."""

    counter: int
    """Number of the node's newest joined or left event; never reused."""
    round: int
    """Round of the newest aggregated model this node holds."""
    model: Model
    view: Any = None
    """A snapshot of whom the node knows, if it keeps a view."""
    ordinal: int = 0
    """How many rounds led to that model."""
    ended: int = 0
    """The round of the model that the session has ended with, as soon as the node knows of it."""


class Node(Protocol):
    """A protocol's node as the runtimes see it."""

    def handle(self, now: float, event: Event) -> list[Effect]:
        """Advance by one event. Synchronous, total, and the only way to change the node."""
