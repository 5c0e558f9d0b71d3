"""`fair`: exact max-min fairness by progressive filling: the oracle for the other rules.

All rates rise together; when a link is full, the flows on it stay where they are and the others go
on. In the end no flow can have more without taking from one that has no more than itself. A change
can reach all flows that are connected to it by links, however indirectly, so this rule is not
local; the other flows keep their rates and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from plexus.sim.sharing.links import Flow, Link, Sharing


class Fair(Sharing):
    """Max-min fair rates over everything the touched links are connected to."""

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
