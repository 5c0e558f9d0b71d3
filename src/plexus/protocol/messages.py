"""What nodes say to each other. The declarations here are also the wire format (see `wire`)."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from plexus.protocol.view import Snapshot

NodeId: TypeAlias = int
"""A node's number in the local roster; on the wire it is the node's key (see `roster`)."""

Model: TypeAlias = Any
"""Opaque to every protocol: tensors when live, an expression or a label in the simulator."""

ADDRESS_BYTES = 18
"""Where a node can be reached: an IPv6 (or mapped IPv4) address and a port, in network order."""
NO_ADDRESS = bytes(ADDRESS_BYTES)
"""Of a node that cannot be reached, or need not be (in the simulator)."""


class Message(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Base of all messages."""


class Ping(Message, frozen=True, tag=1):
    """Are you there? `round` is the newest round the asking node works on."""

    exchange: int
    round: int


class Pong(Message, frozen=True, tag=2):
    """Yes. `round` is the newest round the answering node knew of before the ping, `held` the round of
    the newest aggregated model it holds."""

    exchange: int
    round: int
    held: int


class Joined(Message, frozen=True, tag=3):
    """The sender is online since its event number `counter`."""

    counter: int
    bandwidth_bytes_per_s: int
    address: bytes = NO_ADDRESS


class Left(Message, frozen=True, tag=4):
    """The sender goes offline: its event number `counter`."""

    counter: int


class Ack(Message, frozen=True, tag=5):
    """Round `round` has been aggregated: no need to look for another aggregator."""

    round: int


class TrainRequest(Message, frozen=True, tag=6):
    """From the aggregator of `round` to each participant: train this model."""

    round: int
    participants: int
    """How many nodes were asked to train in this round: the aggregator's success fraction is of these."""
    view: Snapshot
    model: Model


class AggregateRequest(Message, frozen=True, tag=7):
    """From a participant of `round - 1` to the aggregator of `round`: here is my trained model."""

    round: int
    participants: int
    samples: int
    """Training examples behind this model, for sample-weighted means."""
    view: Snapshot
    model: Model


class ViewRequest(Message, frozen=True, tag=8):
    """From a node that is joining: whom do you know?"""


class ViewReply(Message, frozen=True, tag=9):
    """These."""

    view: Snapshot


Body: TypeAlias = (
    Ping | Pong | Joined | Left | Ack | TrainRequest | AggregateRequest | ViewRequest | ViewReply
)
ModelMessage = (TrainRequest, AggregateRequest)
