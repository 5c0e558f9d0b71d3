"""Reaching out: one attempt at a time per peer, with growing pauses after failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.connection import Connection
from plexus.live.transport.limits import Limits

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub


class Dialler:
    """The attempts under way, and when the next ones may be made."""

    def __init__(self, hub: Hub, limits: Limits, source: str | None) -> None:
        self._hub = hub
        self._limits = limits
        self._source = source
        self._attempts: dict[bytes | Address, asyncio.Task[str | None]] = {}
        self._pauses: dict[bytes | Address, tuple[float, float]] = {}

    def is_dialling(self, key: bytes) -> bool:
        return key in self._attempts

    @property
    def is_busy(self) -> bool:
        return bool(self._attempts)

    def dial(self, address: Address, key: bytes) -> bool:
        """Try to reach the node `key` at `address`; says whether an attempt is under way."""
        if key in self._attempts:
            return True
        if asyncio.get_running_loop().time() < self._pauses.get(key, (0.0, 0.0))[0]:
            return False
        self._begin(address, key, key)
        return True

    async def introduce(self, address: Address) -> str | None:
        """Reach whoever is at `address`; returns why there is no link, or None."""
        task = self._attempts.get(address) or self._begin(address, None, address)
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._attempts.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, address: Address, key: bytes | None, name: bytes | Address) -> asyncio.Task[str | None]:
        task = asyncio.get_running_loop().create_task(self._attempt(address, key))
        self._attempts[name] = task
        task.add_done_callback(lambda done: self._ended(name, key, done))
        return task

    async def _attempt(self, address: Address, key: bytes | None) -> str | None:
        loop = asyncio.get_running_loop()
        connection = Connection(self._hub, dialled=True, expected=key)
        local = None if self._source is None else (self._source, 0)
        try:
            async with asyncio.timeout(self._limits.handshake_timeout_s):
                async with asyncio.timeout(self._limits.connect_timeout_s):
                    await loop.create_connection(lambda: connection, *address, local_addr=local)
                await connection.settled
        except TimeoutError:
            connection.close("no answer", tell=False)
        except OSError as error:
            connection.remote = address
            connection.close(f"cannot be reached: {error.strerror or error}", tell=False)
        if connection.was_race:  # the other side's connection is kept, and on its way
            return None
        return connection.reason and f"{addresses.show(address)}: {connection.reason}"

    def _ended(self, name: bytes | Address, key: bytes | None, task: asyncio.Task[str | None]) -> None:
        del self._attempts[name]
        if task.cancelled():
            return
        if task.exception() is not None or task.result() is not None:
            loop = asyncio.get_running_loop()
            pause_s = min(
                2 * self._pauses.get(name, (0, self._limits.redial_s / 2))[1], self._limits.max_redial_s
            )
            self._pauses[name] = (loop.time() + pause_s, pause_s)
            if key is not None and key not in self._hub.links:
                self._hub.forget(key)
        else:
            self._pauses.pop(name, None)
