"""A fleet's network: a proxy in front of every node, with the delays and rates of the traces.

Nodes dial from addresses of their own (all of 127.0.0.0/8 is loopback on Linux), so that a proxy can tell
who dials.
"""

from __future__ import annotations

import sys
from functools import partial

from plexus.errors import PlexusError
from plexus.live.fleet.shaping import Pipe, Proxy, Route, Way
from plexus.live.transport.addresses import Address
from plexus.traces.world import World

PER_BLOCK = 250


class Neighbourhood:
    """The proxies of all nodes, and the routes between them."""

    def __init__(self, world: World) -> None:
        if sys.platform != "linux":
            raise PlexusError("--shape needs Linux: each node dials from its own loopback address")
        self._world = world
        self._up = [Pipe(device.up_bytes_per_s) for device in world.devices]
        self._down = [Pipe(device.down_bytes_per_s) for device in world.devices]
        self._numbers = {self.source(node): node for node in range(len(world))}
        self._proxies: list[Proxy] = []

    def source(self, node: int) -> str:
        """The address that `node` dials from."""
        block, rest = divmod(node, PER_BLOCK)
        return f"127.1.{block}.{rest + 1}"

    async def open(self, targets: list[Address]) -> list[Address]:
        """Put a proxy in front of every target; returns where the proxies listen."""
        fronts = []
        for node, target in enumerate(targets):
            proxy = Proxy(target, partial(self._route, node))
            self._proxies.append(proxy)
            fronts.append(await proxy.listen((target[0], 0)))
        return fronts

    async def close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()

    def _route(self, dialled: int, host: str) -> Route:
        dialler = self._numbers[host]
        return Route(self._way(dialler, dialled), self._way(dialled, dialler))

    def _way(self, src: int, dst: int) -> Way:
        latency = self._world.latency
        delay_s = float(latency.matrix_s[latency.city_of[src], latency.city_of[dst]])
        return Way(delay_s, [self._up[src], self._down[dst]])
