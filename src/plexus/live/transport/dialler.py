"""Reaching out to others: directly, and by way of members who have links with both.

Relays are tried in an order of chance, weighted by bandwidth; those that failed come last. Where the direct
way has failed, relays are tried before it, and it is tried again while the link is by way of one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.connection import Connection
from plexus.live.transport.frames import Kind
from plexus.live.transport.streams import RelayedTransport
from plexus.protocol.messages import NO_ADDRESS

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub
    from plexus.live.transport.link import PeerLink

RELAYS_TRIED = 2
"""In one attempt; there may be another one soon."""
FAILED_KEPT = 8
DIRECT_AGAIN_S = 30.0
Way = Callable[[], Coroutine[Any, Any, str | None]]


class Dialler:
    """One attempt at a time per peer, with growing pauses after failures (back-off)."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.attempts: dict[bytes | Address, asyncio.Task[str | None]] = {}
        """Those under way, by node or by address where it is not known who is there."""
        self.by_relay: set[bytes] = set()
        """Nodes with which a link by way of another one is being made."""
        self._pauses: dict[bytes | Address, tuple[float, float]] = {}
        self._no_way: dict[bytes, Address | None] = {}
        """By node, where it could not be reached directly the last time."""
        self._directly_at: dict[bytes, float] = {}
        """When a better way to a node is looked for again."""
        self._failed: dict[bytes, deque[bytes]] = {}
        """By node, relays that were of no use, the latest last."""

    def dial(self, key: bytes) -> bool:
        """Try to reach the node `key`; says whether an attempt is under way."""
        if key in self.attempts:
            return True
        if asyncio.get_running_loop().time() < self._pauses.get(key, (0.0, 0.0))[0]:
            return False
        address = self._hub.roster.where(key)
        if address is None and not self._relays(key):
            return False
        self._begin(address, key)
        return True

    def look_for_direct(self, key: bytes) -> None:
        """There is a link with the node by way of another one: now and then, try without."""
        now = asyncio.get_running_loop().time()
        if self._hub.roster.where(key) is not None and now >= self._directly_at.get(key, 0.0):
            self._directly_at[key] = now + DIRECT_AGAIN_S
            self.dial(key)

    async def introduce(self, address: Address) -> str | None:
        """Reach whoever is at `address`; returns why there is no link, or None."""
        task = self.attempts.get(address) or self._begin(address, None)
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self.attempts.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def has_relay(self) -> bool:
        """Whether others can reach this node without an address, by way of somebody that has one."""
        links = self._hub.links.values()
        return any(link.streams.are_possible and link.hello.address != NO_ADDRESS for link in links)

    def blame(self, relay: bytes, key: bytes) -> None:
        """What went by way of `relay` did not get to the node `key`, for whatever reason."""
        failed = self._failed.setdefault(key, deque(maxlen=FAILED_KEPT))
        if relay in failed:
            failed.remove(relay)
        failed.append(relay)

    def _relays(self, key: bytes) -> list[PeerLink]:
        """Who may have a link with the node `key`, those first that are to be tried first."""
        pair = b"".join(sorted((key, self._hub.admission.key)))
        failed = list(self._failed.get(key, ()))

        def place(link: PeerLink) -> tuple[int, bool, int]:
            chance = int.from_bytes(hashlib.blake2b(link.key + pair, digest_size=4).digest(), "big")
            before = failed.index(link.key) + 1 if link.key in failed else 0
            return before, link.hello.address == NO_ADDRESS, -chance * max(1, self._hub.bandwidth(link.key))

        links = self._hub.links.values()
        return sorted((link for link in links if link.streams.are_possible and link.key != key), key=place)

    def _begin(self, address: Address | None, key: bytes | None) -> asyncio.Task[str | None]:
        name = key or address
        assert name is not None
        task = asyncio.get_running_loop().create_task(self._reach(address, key))
        self.attempts[name] = task
        task.add_done_callback(lambda done: self._ended(name, key, done))
        return task

    async def _reach(self, address: Address | None, key: bytes | None) -> str | None:
        """By one way after the other; returns why there is no link, or None."""
        direct: list[Way] = [] if address is None else [partial(self._directly, address, key)]
        relayed: list[Way] = []
        if key is not None and key not in self._hub.links:
            relayed += [partial(self._by_way_of, link, key) for link in self._relays(key)[:RELAYS_TRIED]]
        is_hopeless = key is not None and self._no_way.get(key) == address
        reason: str | None = "no way is known"
        for way in [*relayed, *direct] if is_hopeless else [*direct, *relayed]:
            reason = reason and await way()
        return reason

    async def _directly(self, address: Address, key: bytes | None) -> str | None:
        loop, connection = asyncio.get_running_loop(), Connection(self._hub, dialled=True, expected=key)
        connection.remote = address
        local = None if self._hub.source is None else (self._hub.source, 0)
        connecting = loop.create_connection(lambda: connection, *address, local_addr=local)
        reason = await self._settled(connection, connecting)
        if key is not None:
            self._no_way[key] = address if reason else None
        return reason and f"{addresses.show(address)}: {reason}"

    async def _by_way_of(self, relay: PeerLink, key: bytes) -> str | None:
        if key in self._hub.links or not relay.connection.is_up:
            return "there is another way by now"
        connection = Connection(self._hub, dialled=True, expected=key, relay=relay.key)
        self.by_relay.add(key)
        RelayedTransport(relay, relay.streams.begin(Kind.OPEN, key), connection)
        reason = await self._settled(connection, connection.settled.wait())
        self.by_relay.discard(key)
        if reason is not None:
            self.blame(relay.key, key)
        return reason

    async def _settled(self, connection: Connection, connecting: Awaitable[object]) -> str | None:
        """Why there is no link by this connection, if there is none."""
        try:
            async with asyncio.timeout(self._hub.limits.handshake_timeout_s):
                async with asyncio.timeout(self._hub.limits.connect_timeout_s):
                    await connecting
                await connection.settled.wait()
        except TimeoutError:
            connection.close("no answer", tell=False)
        except OSError as error:
            connection.close(f"cannot be reached: {error.strerror or error}", tell=False)
        # After a race the other side's connection is kept, and on its way.
        return None if connection.was_race else connection.reason

    def _ended(self, name: bytes | Address, key: bytes | None, task: asyncio.Task[str | None]) -> None:
        del self.attempts[name]
        if task.cancelled():
            return
        has_failed = task.exception() is not None or task.result() is not None
        if not has_failed or key in self._hub.links:  # one that could have been better
            self._pauses.pop(name, None)
        else:
            loop, limits = asyncio.get_running_loop(), self._hub.limits
            _, before_s = self._pauses.get(name, (0.0, limits.redial_s / 2))
            pause_s = min(2 * before_s, limits.max_redial_s)
            self._pauses[name] = (loop.time() + pause_s, pause_s)
            if key is not None:
                self._hub.forget(key)
