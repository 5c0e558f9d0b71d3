"""Churn from traces: processes are started and ended when their devices come and go."""

from __future__ import annotations

import heapq
import signal
from typing import TYPE_CHECKING

from plexus.rng import stream
from plexus.traces.world import World

if TYPE_CHECKING:
    from plexus.live.fleet.fleet import Member
    from plexus.traces.build import TracesSpec


class Churn:
    """The traces' changes in the order of their times, `speed` times as fast."""

    def __init__(
        self, members: list[Member], world: World, traces: TracesSpec, seed: int, speed: float
    ) -> None:
        self._members = members
        self._speed = speed
        self._graceful_share = traces.graceful_share
        self._rng = stream(seed, "leaves")
        self._toggles = [world.availability.toggles(node) for node in range(len(members))]
        self._next: list[tuple[float, int, bool]] = []
        for node in range(len(members)):
            self._schedule(node)

    async def begin(self) -> None:
        """Start those who are there at the beginning."""
        await self.go_on(0.0)

    async def go_on(self, now_s: float) -> None:
        """Do everything that is due by `now_s` of real time."""
        while self._next and self._next[0][0] <= now_s * self._speed:
            _, node, online = heapq.heappop(self._next)
            if online:
                await self._members[node].start()
            elif self._rng.random() < self._graceful_share:
                await self._members[node].end(signal.SIGTERM)
            else:
                await self._members[node].end(signal.SIGKILL)
            self._schedule(node)

    def _schedule(self, node: int) -> None:
        change = next(self._toggles[node], None)
        if change is not None:
            heapq.heappush(self._next, (change[0], node, change[1]))
