"""A node reduced to its network: a hub, an address book, and a record of what came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import StringIO
from typing import Any

import msgspec

from plexus.live.identity.admission import Admission
from plexus.live.models import LiveModel, seal
from plexus.live.operator.log import Log
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import Limits, LiveRoster
from plexus.live.transport.receiving import Buffers, Ticket

PATIENCE_S = 20.0


class End:
    """One side of links; must be made while a loop runs."""

    def __init__(
        self,
        admission: Admission,
        model_bytes: int = 1000,
        limits: Limits | None = None,
        source: str | None = None,
    ) -> None:
        limits = limits or Limits()
        self.log = StringIO()
        self.buffers = Buffers(model_bytes, 2 * model_bytes)
        self.key = admission.key
        self.roster = LiveRoster(admission.session.digest, admission.key, 1000)
        self.hub = Hub(
            admission,
            limits,
            self.roster,
            lambda _: self.known_bandwidth,
            Log(self.log, "warning"),
            self,
            source=source,
            dial_only=True,
        )
        self.address: Address = ("127.0.0.1", 0)
        self.messages: list[tuple[bytes, bytes]] = []
        self.models: list[tuple[bytes, bytes, bytes]] = []
        self.fates: list[tuple[Any, str]] = []
        self.downs: list[str] = []
        self.withdrawn: list[bytes] = []
        self._events = 1
        self.rates: list[tuple[bool, float]] = []
        self.unwanted: set[bytes] = set()
        self.known_bandwidth = 0
        self.holding: list[Ticket] | None = None
        """Tickets of models that are not given back, if a list."""

    async def open(self, address: Address = ("127.0.0.1", 0)) -> None:
        self.address = await self.hub.listen(address)

    def knows(self, *others: End) -> None:
        for other in others:
            self.learn(other.key, other.address)

    def learn(self, key: bytes, address: Address) -> None:
        """Somebody with this key can be dialled there, from now on."""
        self._events += 1
        self.roster.learn_address(self.roster.number(key), self._events, addresses.pack(address))

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for something; fails if it does not come."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.005)

    def is_linked(self, other: End) -> bool:
        return other.key in self.hub.links

    def send(self, other: End, payload: bytes) -> None:
        self.hub.send(other.key, len(payload).to_bytes(4, "big") + payload)

    def send_model(self, other: End, data: bytes, tag: Any, name: bytes = b"a model") -> None:
        self.hub.send(other.key, name, tag, LiveModel(memoryview(data), seal(data)))

    def warnings(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.log.getvalue().splitlines()]

    @property
    def failures(self) -> list[dict[str, Any]]:
        return [line for line in self.warnings() if line["event"] == "failure"]

    # The hub's inbox

    def message(self, src: bytes, payload: bytes) -> None:
        self.messages.append((src, payload))

    def offered(self, src: bytes, payload: bytes) -> bytes | None:
        return None if payload in self.unwanted else payload

    def model(self, src: bytes, payload: bytes, model: LiveModel, ticket: Ticket) -> None:
        self.models.append((src, payload, bytes(model.data)))
        if self.holding is None:
            self.buffers.give_back(ticket)
        else:
            self.holding.append(ticket)

    def overdue(self, src: bytes) -> None: ...

    def not_coming(self, src: bytes, body: Any) -> None:
        self.withdrawn.append(body)

    def outcome(self, dst: bytes, tag: Any, reason: str | None) -> None:
        self.fates.append((tag, reason or "sent"))

    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None:
        self.rates.append((sent, size_bytes / seconds))

    def list_offered(self, src: bytes, list_der: bytes) -> None:
        self.hub.admission.adopt(self.hub.admission.read(list_der))

    def link_down(self, key: bytes, reason: str) -> None:
        self.downs.append(reason)
