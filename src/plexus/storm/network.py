"""The simulated network in bad weather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plexus.protocol.api import Received
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.wire import frame_bytes
from plexus.sim.network import Network
from plexus.sim.sharing import Sharing
from plexus.storm.codec import Codec
from plexus.storm.weather import Weather


class FaultyNetwork(Network):
    """Loses, duplicates, delays and damages messages, and knows partitions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.weather: Weather
        self.codec: Codec
        self.through_codec = False
        self.duplicated_bytes = 0
        """Of copies that nobody sent: the network made them."""
        self.sharing: Sharing = self._transfers.sharing
        self.on_send: Callable[[NodeId, tuple[NodeId, ...], Message], None]
        self.on_lost: Callable[[NodeId, NodeId, Message, str], None]

    def send(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        self.on_send(src, to, body)
        if self.through_codec:
            body = self.codec.carry(body)
        if not self.weather.active or hasattr(body, "model"):
            super().send(src, to, body)
            return
        for dst in to:
            if dst == src or not self._online[dst]:
                super().send(src, (dst,), body)
            else:
                self._send_one(src, dst, body)

    def cut_parted(self) -> None:
        """End the transfers between nodes that a partition has come between."""
        parted = [
            flow
            for node in range(len(self.sharing))
            for flow in self.sharing.sent_by(node)
            if not self.weather.connected(flow.src, flow.dst)
        ]
        self._account_cut(self._transfers.cut_flows(parted, self._kernel.now))

    def _send_one(self, src: NodeId, dst: NodeId, body: Message) -> None:
        size_bytes = frame_bytes(body)
        self._accounts.send_control(src, type(body), 1, size_bytes)
        if not self.weather.passes(src, dst):
            self._lose(src, dst, body, size_bytes, "a partition")
            return
        self._scatter(dst, Received(src, body, size_bytes))

    def _transfer(self, src: NodeId, to: list[NodeId], asked: int, body: Message) -> None:
        there = [dst for dst in to if self.weather.connected(src, dst)]
        super()._transfer(src, there, asked, body)

    def _arrive(self, dst: NodeId, received: Received) -> None:
        if self.weather.active:
            self._scatter(dst, received)
        else:
            super()._arrive(dst, received)

    def _scatter(self, dst: NodeId, received: Received) -> None:
        """Deliver as many copies as the weather leaves, each at its own moment."""
        src, body, size_bytes = received.src, received.body, received.size_bytes
        if self.weather.is_damaged():
            self.codec.damage(body)
            self._lose(src, dst, body, size_bytes, "damaged")
            return
        copies_s = self.weather.copies_s(src, dst)
        if not copies_s:
            self._lose(src, dst, body, size_bytes, "lost")
            return
        self.duplicated_bytes += (len(copies_s) - 1) * size_bytes
        usual_s = self._kernel.now + self.delays_s(src)[dst]
        for late_s in copies_s:
            self._kernel.at(usual_s + late_s, dst, received)

    def _lose(self, src: NodeId, dst: NodeId, body: Message, size_bytes: int, why: str) -> None:
        self._accounts.lose(1, size_bytes)
        self.on_lost(src, dst, body, why)
