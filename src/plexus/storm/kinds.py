"""The faults that a storm is made of. Each is data: what goes wrong, for whom, from when until when."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from plexus.protocol.messages import NodeId


class Fault(Struct, frozen=True, kw_only=True):
    """Something that goes wrong from `from_s` until `until_s`."""

    from_s: float = 0.0
    until_s: float


# Of the network


class Loss(Fault, frozen=True, kw_only=True):
    """This share of all messages never arrives."""

    share: float


class Duplication(Fault, frozen=True, kw_only=True):
    """This share of all messages arrives twice, at different moments."""

    share: float


class Delay(Fault, frozen=True, kw_only=True):
    """This share of all messages takes up to `longest_s` longer, so that later ones overtake them."""

    share: float
    longest_s: float


class Damage(Fault, frozen=True, kw_only=True):
    """This share of all messages is damaged or cut short on the way (see `Codec`)."""

    share: float


class Partition(Fault, frozen=True, kw_only=True):
    """Messages between `side` and the others do not pass: both ways, or only into `side`. A `partial`
    partition lets some pairs through: node numbers whose sum is even."""

    kind: Literal["full", "one-way", "partial"]
    side: frozenset[NodeId]


class Slow(Fault, frozen=True, kw_only=True):
    """These nodes train `factor` times as long, and hear and answer up to `lag_s` later."""

    nodes: frozenset[NodeId]
    factor: float
    lag_s: float


class Collapse(Fault, frozen=True, kw_only=True):
    """The links of these nodes have `factor` of their capacity."""

    nodes: frozenset[NodeId]
    factor: float


# Of the nodes


class Churn(Fault, frozen=True, kw_only=True):
    """Each node comes or goes about every `mean_s`."""

    mean_s: float
    leave_share: float
    """How many of those who go say goodbye; the others crash."""
    restart_share: float
    """How many of those who come are new processes that read their disk, not the old ones."""
    disk_lost_share: float
    """How many of these find their disk empty."""


class Flapping(Fault, frozen=True, kw_only=True):
    """These nodes are online for `up_s` and offline for `down_s`, again and again."""

    nodes: frozenset[NodeId]
    up_s: float
    down_s: float
    graceful: bool


class PowerCut(Fault, frozen=True, kw_only=True):
    """About every `mean_s` some node stops in the midst of carrying out what it decided."""

    mean_s: float


class Remeasured(Fault, frozen=True, kw_only=True):
    """About every `mean_s` some node finds its bandwidth to be another (Plexus only)."""

    mean_s: float


# Of things that do not heal


class Skew(Fault, frozen=True, kw_only=True):
    """The clocks of these nodes differ by up to `offset_s`, and run up to `drift` faster or slower."""

    nodes: frozenset[NodeId]
    offset_s: float
    drift: float


class Liar(Fault, frozen=True, kw_only=True):
    """These nodes advertise `factor` times the bandwidth they have."""

    nodes: frozenset[NodeId]
    factor: float
