"""`fifo`: flows are served in start order; each takes all that earlier ones leave it.

A flow for which nothing is left waits at rate 0. When capacity comes free, earlier flows are topped
up before later ones get anything, whichever of their links limited them. So no flow ever loses to a
later one, while an earlier flow that is topped up may take from a later one.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from plexus.sim.sharing.links import Flow, Link, Sharing

ROUNDING = 1e-9
"""Less than this fraction of a link's capacity is rounding error, not capacity to hand out."""
_ORDER = attrgetter("order")


class Fifo(Sharing):
    """First come, first served, on both links."""

    def __init__(self, up_bytes_per_s: Sequence[float], down_bytes_per_s: Sequence[float]) -> None:
        super().__init__(up_bytes_per_s, down_bytes_per_s)
        self._started = 0

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
