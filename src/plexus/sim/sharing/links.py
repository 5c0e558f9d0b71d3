"""Flows and the links they run over: what every sharing rule has in common.

A node has two links, up and down; a flow runs over the up link of its sender and the down link of
its receiver, at one rate that changes only when flows start or stop. Between two changes a flow is
not touched: it remembers since when it has had its rate. A rule knows no clock; it is told what
starts and stops at which instant, and answers with the flows whose rate that changed.

Everything iterates in start order, so the same calls give the same floats on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

from plexus.errors import PlexusError

RESOLUTION_S = 1e-9
"""Instants closer than this are one: rounding must not tell apart flows that end together."""


class Link:
    """One direction of one node's connection, and the flows on it in start order."""

    __slots__ = ("capacity_bytes_per_s", "flows", "share_bytes_per_s", "usual_bytes_per_s")

    def __init__(self, capacity_bytes_per_s: float) -> None:
        self.capacity_bytes_per_s = self.usual_bytes_per_s = capacity_bytes_per_s
        self.share_bytes_per_s = capacity_bytes_per_s
        self.flows: list[Flow] = []


class Flow:
    """One transfer under way: `total_bytes` from `src` to `dst`."""

    __slots__ = (
        "down",
        "down_spare_bytes_per_s",
        "dst",
        "ends_s",
        "order",
        "rate_bytes_per_s",
        "remaining_bytes",
        "since_s",
        "src",
        "tag",
        "total_bytes",
        "up",
        "up_spare_bytes_per_s",
    )

    up: Link
    down: Link
    order: int
    """Place in the start order over all flows (`fifo`)."""
    up_spare_bytes_per_s: float
    down_spare_bytes_per_s: float
    """What it and earlier flows leave of each of its links (`fifo`)."""

    def __init__(self, src: int, dst: int, total_bytes: float, tag: Any = None) -> None:
        self.src = src
        self.dst = dst
        self.total_bytes = total_bytes
        self.remaining_bytes = total_bytes
        self.rate_bytes_per_s = 0.0
        self.since_s = 0.0
        """When `remaining_bytes` was true; the rate holds from then on."""
        self.ends_s = inf
        """When it is complete if the rate stays as it is."""
        self.tag = tag
        """Whatever the caller wants back with the flow: the message it carries."""

    def __repr__(self) -> str:
        return (
            f"Flow({self.src} → {self.dst}, {self.remaining_bytes:g} of {self.total_bytes:g} B "
            f"left at {self.since_s:g} s, {self.rate_bytes_per_s:g} B/s)"
        )

    @property
    def sent_bytes(self) -> float:
        """What had been sent when the flow was last settled."""
        return self.total_bytes - self.remaining_bytes

    def settle(self, now: float) -> None:
        """Account for what was sent at the present rate until `now`."""
        if now >= self.ends_s - RESOLUTION_S:
            self.remaining_bytes = 0.0
        else:
            left = self.remaining_bytes - self.rate_bytes_per_s * (now - self.since_s)
            self.remaining_bytes = left if left > 0.0 else 0.0
        self.since_s = now

    def change_rate(self, rate_bytes_per_s: float, now: float) -> None:
        """Settle, then go on at another rate."""
        self.settle(now)
        self.rate_bytes_per_s = rate_bytes_per_s
        if rate_bytes_per_s:
            self.ends_s = now + self.remaining_bytes / rate_bytes_per_s
        else:
            # A flow that has just sent everything is complete, even if it loses its rate now.
            self.ends_s = inf if self.remaining_bytes else now


class Sharing(ABC):
    """A rule for the rates, which depend on nothing but the flows present and their start order."""

    def __init__(self, up_bytes_per_s: Sequence[float], down_bytes_per_s: Sequence[float]) -> None:
        if len(up_bytes_per_s) != len(down_bytes_per_s):
            raise PlexusError(
                f"every node has two links, not {len(up_bytes_per_s)} up and {len(down_bytes_per_s)} down"
            )
        self._up = _links("up", up_bytes_per_s)
        self._down = _links("down", down_bytes_per_s)

    def __len__(self) -> int:
        return len(self._up)

    @abstractmethod
    def start(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        """Begin `flows` at one instant; all whose rate changed (a flow that begins had none)."""

    @abstractmethod
    def stop(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        """End `flows`, complete or not, at one instant; all *others* whose rate changed."""

    def resize(self, node: int, factor: float, now: float) -> list[Flow]:
        """Give both links of `node` `factor` times their usual capacity; all whose rate may have changed.

        The flows of the node begin anew where they are, after those of others.
        """
        flows = self.flows_of(node)
        changed = dict.fromkeys([*self.stop(flows, now), *flows])
        for link in (self._up[node], self._down[node]):
            link.capacity_bytes_per_s = factor * link.usual_bytes_per_s
        return list(changed | dict.fromkeys(self.start(flows, now)))

    def links_of(self, node: int) -> tuple[Link, Link]:
        """The up and the down link of `node`."""
        return self._up[node], self._down[node]

    def sent_by(self, node: int) -> Sequence[Flow]:
        """The flows out of `node` in start order; not a copy."""
        return self._up[node].flows

    def flows_of(self, node: int) -> list[Flow]:
        """All flows out of and into `node`; one that it sends to itself counts once."""
        received = [flow for flow in self._down[node].flows if flow.src != node]
        return self._up[node].flows + received

    def _attach(self, flows: Sequence[Flow], now: float) -> dict[Link, None]:
        """Put `flows` on their links, still at rate 0; the links concerned, each once."""
        touched: dict[Link, None] = {}
        for flow in flows:
            flow.since_s = now
            flow.up = up = self._up[flow.src]
            flow.down = down = self._down[flow.dst]
            up.flows.append(flow)
            down.flows.append(flow)
            touched[up] = touched[down] = None
        return touched

    def _detach(self, flows: Sequence[Flow], now: float) -> dict[Link, None]:
        """Take `flows` off their links, settled and at rate 0; the links concerned, each once."""
        touched: dict[Link, None] = {}
        for flow in flows:
            up, down = flow.up, flow.down
            up.flows.remove(flow)
            down.flows.remove(flow)
            touched[up] = touched[down] = None
            flow.change_rate(0.0, now)
        return touched


def _links(direction: str, capacities_bytes_per_s: Sequence[float]) -> list[Link]:
    for node, capacity in enumerate(capacities_bytes_per_s):
        if not (capacity > 0 and isfinite(capacity)):
            raise PlexusError(
                f"the {direction} link of node {node} needs a positive, finite number of bytes per "
                f"second, not {capacity}"
            )
    return [Link(float(capacity)) for capacity in capacities_bytes_per_s]
