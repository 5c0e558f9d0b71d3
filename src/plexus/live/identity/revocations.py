"""Revocations while a peer runs: a newer list takes effect at once, and travels on at once.

Lists come from the operator, as a file in the node's home, and from other peers. They are parsed, checked
and written in threads: the event loop has links to keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from plexus.errors import PlexusError
from plexus.live.identity.admission import Admission, RefusedError
from plexus.live.operator.log import Log
from plexus.live.transport.hub import Hub


class Revocations:
    """Takes lists in, and sees to it that those they name are gone."""

    def __init__(self, admission: Admission, hub: Hub, log: Log, expel: Callable[[bytes], None]) -> None:
        self._admission = admission
        self._hub = hub
        self._log = log
        self._expel = expel
        self._offers: dict[bytes, bytes] = {}
        """The last list that each peer has sent, if nobody has looked at it yet."""
        self._judging: asyncio.Task[None] | None = None

    def offered(self, src: bytes, list_der: bytes) -> None:
        """A peer passes on a list."""
        if list_der == self._admission.revocations:
            return  # most often: everybody tells everybody
        self._offers[src] = list_der
        if self._judging is None or self._judging.done():
            self._judging = asyncio.get_running_loop().create_task(self._judge())

    async def look_on_disk(self) -> None:
        """The operator may have put a newer list into the node's home."""
        try:
            await self._enforce(self._admission.adopt_from_disk)
        except PlexusError as error:
            self._log.warning("revocations_not_read", reason=str(error))

    async def _judge(self) -> None:
        while self._offers:
            src, list_der = self._offers.popitem()
            try:
                await self._enforce(partial(self._admission.adopt, list_der))
            except RefusedError as error:
                link = self._hub.links.get(src)
                if link is not None:
                    link.connection.close(str(error))

    async def _enforce(self, adopt: Callable[[], bool]) -> None:
        before = self._admission.revoked_nodes
        if not await asyncio.to_thread(adopt):
            return
        self._log.info("revocations", number=self._admission.revocations_number)
        self._hub.enforce_revocations()
        for key in self._admission.revoked_nodes - before:
            self._expel(key)
        try:
            await asyncio.to_thread(self._admission.keep)
        except PlexusError as error:
            self._log.warning("revocations_not_written", reason=str(error))
