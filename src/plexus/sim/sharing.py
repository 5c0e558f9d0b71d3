"""How concurrent transfers share the up and down links of the nodes: three rules, one interface.

A node has two links, up and down; a flow runs over the up link of its sender and the down link of
its receiver, at one rate that changes only when flows start or stop. Between two changes a flow is
not touched: it remembers since when it has had its rate. A rule knows no clock; it is told what
starts and stops at which instant, and answers with the flows whose rate that changed.

Everything iterates in start order, so the same calls give the same floats on every machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf, isfinite
from operator import attrgetter
from typing import Any

from plexus.errors import PlexusError

RESOLUTION_S = 1e-9
"""Instants closer than this are one: rounding must not tell apart flows that end together."""
ROUNDING = 1e-9
"""Less than this fraction of a link's capacity is rounding error, not capacity to hand out."""
_ORDER = attrgetter("order")


@dataclass(eq=False, slots=True)
class Link:
    """One direction of one node's connection, and the flows on it in start order."""

    usual_bytes_per_s: float
    capacity_bytes_per_s: float
    share_bytes_per_s: float
    flows: list[Flow] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Flow:
    """One transfer under way: `total_bytes` from `src` to `dst`."""

    src: int
    dst: int
    total_bytes: float
    tag: Any = None
    """Whatever the caller wants back with the flow: the message it carries."""
    remaining_bytes: float = field(init=False)
    rate_bytes_per_s: float = field(init=False, default=0.0)
    since_s: float = field(init=False, default=0.0)
    """When `remaining_bytes` was true; the rate holds from then on."""
    ends_s: float = field(init=False, default=inf)
    """When it is complete if the rate stays as it is."""
    up: Link = field(init=False)
    down: Link = field(init=False)
    order: int = field(init=False)
    """Place in the start order over all flows (`fifo`)."""
    up_spare_bytes_per_s: float = field(init=False)
    down_spare_bytes_per_s: float = field(init=False)
    """What it and earlier flows leave of each of its links (`fifo`)."""

    def __post_init__(self) -> None:
        self.remaining_bytes = self.total_bytes

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
        for link in self.links_of(node):
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
    return [Link(capacity, capacity, capacity) for capacity in map(float, capacities_bytes_per_s)]


class Shared(Sharing):
    """`shared`: each link splits its capacity equally among its flows; a flow gets the lesser share.

    What a flow cannot use of one share, because its other share is smaller, stays unused. In return a
    change is local: when flows start or stop, only the flows on the very same links can change, and of
    these only the ones that the link limits.
    """

    def start(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        touched = self._attach(flows, now)
        for link in touched:
            link.share_bytes_per_s = link.capacity_bytes_per_s / len(link.flows)
        changed: list[Flow] = []
        for link in touched:
            share = link.share_bytes_per_s
            # Shares only fell: a flow that has no more than this one is limited elsewhere.
            for flow in link.flows:
                if flow.rate_bytes_per_s > share:
                    flow.change_rate(_lesser_share(flow), now)
                    changed.append(flow)
        for flow in flows:
            flow.change_rate(_lesser_share(flow), now)
        changed.extend(flows)
        return changed

    def stop(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        touched = [(link, link.share_bytes_per_s) for link in self._detach(flows, now)]
        for link, _ in touched:
            link.share_bytes_per_s = link.capacity_bytes_per_s / (len(link.flows) or 1)
        changed: list[Flow] = []
        for link, share_before in touched:
            # Shares only rose: a flow that had less than this link's share is limited elsewhere.
            for flow in link.flows:
                if flow.rate_bytes_per_s == share_before:
                    rate = _lesser_share(flow)
                    if rate != share_before:
                        flow.change_rate(rate, now)
                        changed.append(flow)
        return changed


def _lesser_share(flow: Flow) -> float:
    up, down = flow.up.share_bytes_per_s, flow.down.share_bytes_per_s
    return up if up < down else down


class Fair(Sharing):
    """`fair`: exact max-min fairness by progressive filling: the oracle for the other rules.

    All rates rise together; when a link is full, the flows on it stay where they are and the others go
    on. In the end no flow can have more without taking from one that has no more than itself. A change
    can reach all flows that are connected to it by links, however indirectly, so this rule is not
    local; the other flows keep their rates and are left alone.
    """

    def start(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        return _refill(self._attach(flows, now), now)

    def stop(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        return _refill(self._detach(flows, now), now)


def _refill(touched: Iterable[Link], now: float) -> list[Flow]:
    """Give every flow connected to `touched` its max-min rate; those whose rate changed."""
    changed = []
    for flow, rate in max_min_rates(_connected(touched)).items():
        if rate != flow.rate_bytes_per_s:
            flow.change_rate(rate, now)
            changed.append(flow)
    return changed


def _connected(touched: Iterable[Link]) -> list[Link]:
    """The links reachable from `touched` over flows, `touched` included."""
    found = dict.fromkeys(touched)
    queue = list(found)
    for link in queue:  # grows while it is read
        for flow in link.flows:
            for other in (flow.up, flow.down):
                if other not in found:
                    found[other] = None
                    queue.append(other)
    return queue


def max_min_rates(links: Sequence[Link]) -> dict[Flow, float]:
    """The max-min rate of every flow on `links`, which hold both links of each of their flows."""
    left = {link: link.capacity_bytes_per_s for link in links}
    unfilled = {link: len(link.flows) for link in links}
    rates: dict[Flow, float] = {}
    # Filling one link only raises what the others can give each of their flows, so an entry that is
    # too low by now goes back with its present level.
    levels = [(left[link] / len(link.flows), at) for at, link in enumerate(links) if link.flows]
    heapify(levels)
    while levels:
        level, at = heappop(levels)
        link = links[at]
        if not unfilled[link]:
            continue
        present = left[link] / unfilled[link]
        if present > level:
            heappush(levels, (present, at))
            continue
        for flow in link.flows:
            if flow not in rates:
                rates[flow] = level
                for side in (flow.up, flow.down):
                    left[side] -= level
                    unfilled[side] -= 1
    return rates


class Fifo(Sharing):
    """`fifo`: flows are served in start order; each takes all that earlier ones leave it.

    A flow for which nothing is left waits at rate 0. When capacity comes free, earlier flows are topped
    up before later ones get anything, whichever of their links limited them. So no flow ever loses to a
    later one, while an earlier flow that is topped up may take from a later one.
    """

    _started = 0

    def start(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        self._attach(flows, now)
        for flow in flows:
            flow.order = self._started
            self._started += 1
            flow.up_spare_bytes_per_s = flow.down_spare_bytes_per_s = 0.0
        return _serve(flows, now)

    def stop(self, flows: Sequence[Flow], now: float) -> list[Flow]:
        self._detach(flows, now)
        behind: list[Flow] = []
        for flow in flows:
            for link in (flow.up, flow.down):
                at = bisect(link.flows, flow.order, key=_ORDER)
                behind += link.flows[at : at + 1]
        return _serve(behind, now)


def _serve(doubtful: Sequence[Flow], now: float) -> list[Flow]:
    """Serve `doubtful` again in start order, and whoever is behind one that leaves another rest."""
    queue = [(flow.order, flow) for flow in doubtful]
    heapify(queue)
    changed: list[Flow] = []
    served = -1
    while queue:
        order, flow = heappop(queue)
        if order == served:  # queued more than once
            continue
        served = order
        up, down = flow.up, flow.down
        up_at, down_at = up.flows.index(flow), down.flows.index(flow)
        up_left = up.flows[up_at - 1].up_spare_bytes_per_s if up_at else up.capacity_bytes_per_s
        down_left = down.flows[down_at - 1].down_spare_bytes_per_s if down_at else down.capacity_bytes_per_s
        rate = min(up_left, down_left)
        if rate != flow.rate_bytes_per_s:
            flow.change_rate(rate, now)
            changed.append(flow)
        up_spare, down_spare = _spare(up, up_left - rate), _spare(down, down_left - rate)
        if up_spare != flow.up_spare_bytes_per_s:
            flow.up_spare_bytes_per_s = up_spare
            _queue_at(queue, up, up_at + 1)
        if down_spare != flow.down_spare_bytes_per_s:
            flow.down_spare_bytes_per_s = down_spare
            _queue_at(queue, down, down_at + 1)
    return changed


def _spare(link: Link, left_bytes_per_s: float) -> float:
    return left_bytes_per_s if left_bytes_per_s > ROUNDING * link.capacity_bytes_per_s else 0.0


def _queue_at(queue: list[tuple[int, Flow]], link: Link, at: int) -> None:
    if at < len(link.flows):
        flow = link.flows[at]
        heappush(queue, (flow.order, flow))


RULES: dict[str, type[Sharing]] = {"shared": Shared, "fair": Fair, "fifo": Fifo}
"""The rules by the name a spec gives them."""
