"""A proxy in front of a peer that makes the network worse: slower, farther, broken.

A fleet uses it to give every node the latency and bandwidth of its device; tests use it to break links.
The peers know nothing of it: they are dialled at the proxy's address, as behind a port forward.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from plexus.errors import PlexusError
from plexus.live.transport.addresses import Address
from plexus.traces.world import World

CHUNK_BYTES = 16 * 1024
QUEUED_CHUNKS = 64
PER_BLOCK = 250
"""Nodes in a block of loopback addresses."""


@dataclass
class Pipe:
    """One direction of a device's connection: bytes leave it one after the other at its rate."""

    bytes_per_s: float
    _free_at: float = 0.0

    def reserve(self, count: int, now: float) -> float:
        """When the last of `count` more bytes will have passed."""
        self._free_at = max(now, self._free_at) + count / self.bytes_per_s
        return self._free_at


@dataclass
class Way:
    """What bytes go through in one direction between two nodes. May be changed at any time."""

    delay_s: float = 0.0
    pipes: list[Pipe] = field(default_factory=list)
    """Those of the sender and of the receiver, shared with their other connections."""

    def due(self, count: int, now: float) -> float:
        passed = [pipe.reserve(count, now) for pipe in self.pipes]
        return max(passed, default=now) + self.delay_s


@dataclass
class Route:
    """Both directions between whoever dials and the node behind the proxy."""

    there: Way = field(default_factory=Way)
    back: Way = field(default_factory=Way)


@dataclass(eq=False)
class Proxy:
    _target: Address
    _route_of: Callable[[str], Route]
    _server: asyncio.Server | None = None
    _links: set[asyncio.Task[None]] = field(default_factory=set)

    async def listen(self, address: Address) -> Address:
        self._server = await asyncio.start_server(self._accept, *address)
        return address[0], self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Break all connections through this proxy, abruptly."""
        for link in self._links:
            link.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._links.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        route = self._route_of(writer.get_extra_info("peername")[0])
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                there = group.create_task(_carry(reader, far_writer, route.there))
                back = group.create_task(_carry(far_reader, writer, route.back))
                there.add_done_callback(lambda _: back.cancel())
                back.add_done_callback(lambda _: there.cancel())
        finally:
            far_writer.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Move bytes until one side is gone; not more than some chunks are on their way at a time."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)
    loop = asyncio.get_running_loop()

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            writer.write(data)
            await writer.drain()
            if not data:
                return

    delivering = loop.create_task(deliver())
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await queue.put((way.due(len(data), loop.time()), data))
            await queue.put((loop.time() + way.delay_s, b""))
            await delivering
    finally:
        delivering.cancel()


class Neighbourhood:
    """A fleet's network: a proxy in front of every node, with the delays and rates of the traces.

    Nodes dial from addresses of their own (all of 127.0.0.0/8 is loopback on Linux), so that a proxy can tell
    who dials.
    """

    def __init__(self, world: World) -> None:
        if sys.platform != "linux":
            raise PlexusError("--shape needs Linux: each node dials from its own loopback address")
        self._world = world
        self._up = [Pipe(device.up_bytes_per_s) for device in world.devices]
        self._down = [Pipe(device.down_bytes_per_s) for device in world.devices]
        self._numbers = {self.source(node): node for node in range(len(world))}
        self._proxies: list[Proxy] = []

    def source(self, node: int) -> str:
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
