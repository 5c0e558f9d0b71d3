"""The simulated network in bad weather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random

import msgspec

from plexus.protocol.api import Received, Undelivered
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.roster import Roster
from plexus.protocol.wire import LENGTH_BYTES, WireError, decode, encode, frame_bytes
from plexus.sim.faults import PartedNetwork
from plexus.sim.network import is_transfer
from plexus.sim.sharing import Flow
from plexus.storm.plan import Damage, Delay, Duplication, Fault, Loss, Partition, Slow

OF_THE_NETWORK = (Loss, Duplication, Delay, Damage, Partition, Slow)
LONGEST_BETWEEN_COPIES_S = 3.0


class Weather:
    """The faults of the network that are active now: whether a message passes, when its copies arrive."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.active: list[Fault] = []

    def begin(self, fault: Fault) -> None:
        self.active.append(fault)

    def end(self, fault: Fault) -> None:
        self.active = [other for other in self.active if other is not fault]

    def passes(self, src: NodeId, dst: NodeId) -> bool:
        """No partition is between them in this direction."""
        return not any(isinstance(fault, Partition) and _blocks(fault, src, dst) for fault in self.active)

    def connected(self, src: NodeId, dst: NodeId) -> bool:
        """A transfer needs both directions: one for the data, one for its receipt."""
        return self.passes(src, dst) and self.passes(dst, src)

    def is_damaged(self) -> bool:
        return any(isinstance(fault, Damage) and self._rng.random() < fault.share for fault in self.active)

    def copies_s(self, src: NodeId, dst: NodeId) -> list[float]:
        """By how much each copy of a message is late; no copy is a loss."""
        late_s = [0.0]
        for fault in self.active:
            if isinstance(fault, Loss):
                late_s = [s for s in late_s if self._rng.random() >= fault.share]
            elif isinstance(fault, Duplication):
                if self._rng.random() < fault.share:
                    late_s += [s + LONGEST_BETWEEN_COPIES_S * self._rng.random() for s in late_s]
            elif isinstance(fault, Delay):
                rng, longest_s, share = self._rng, fault.longest_s, fault.share
                late_s = [s + longest_s * rng.random() if rng.random() < share else s for s in late_s]
            elif isinstance(fault, Slow) and fault.lag_s and not fault.nodes.isdisjoint((src, dst)):
                late_s = [s + fault.lag_s * self._rng.random() for s in late_s]
        return late_s

    def training_factor(self, node: NodeId) -> float:
        slow = (fault for fault in self.active if isinstance(fault, Slow) and node in fault.nodes)
        return prod((fault.factor for fault in slow), start=1.0)


def _blocks(partition: Partition, src: NodeId, dst: NodeId) -> bool:
    outside, inside = src not in partition.side, dst in partition.side
    if partition.kind == "one-way":
        return outside and inside
    parted = outside == inside
    return parted and not (partition.kind == "partial" and (src + dst) % 2 == 0)


class CodecError(Exception):
    """The codec did what it must never do. Not a mistake of whoever sent the bytes."""


class Codec:
    """The codec of deployments (`protocol.wire`) between simulated nodes, and damage to what it made."""

    def __init__(self, roster: Roster, model_bytes: int, rng: Random) -> None:
        self._roster = roster
        self._model_bytes = model_bytes
        self._rng = rng

    def carry(self, body: Message) -> Message:
        frame = encode(body, self._roster, self._model_bytes)
        arrived, model_bytes = decode(frame[LENGTH_BYTES:], self._roster)
        if hasattr(body, "model"):
            if model_bytes != self._model_bytes:
                raise CodecError(f"a model of {model_bytes} bytes instead of {self._model_bytes}")
            arrived = msgspec.structs.replace(arrived, model=body.model)
        return arrived

    def damage(self, body: Message) -> None:
        """Cut the message short or change it, and see that the codec stays in control.

        Whoever carries messages notices damage by itself (TLS does) and drops them, so nothing is
        delivered. But should damage ever get through, the codec must name it or read another message:
        it must not fail in any other way, nor accept a message that lacks its end.
        """
        damaged, is_short = self._damaged(encode(body, self._roster, self._model_bytes)[LENGTH_BYTES:])
        known = len(self._roster)
        try:
            decode(damaged, Roster(self._roster.session, list(self._roster.keys)))
        except WireError:
            pass
        except Exception as error:
            raise CodecError(f"{error!r} while decoding {damaged.hex()}") from error
        else:
            if is_short:
                raise CodecError(f"half a message was accepted: {damaged.hex()}")
        if len(self._roster) != known:
            raise CodecError("damaged bytes changed the roster")

    def _damaged(self, payload: bytes) -> tuple[bytes, bool]:
        rng = self._rng
        at = rng.randrange(len(payload))
        if rng.random() < 0.5:
            return payload[:at], True
        damaged = bytearray(payload)
        for _ in range(rng.choice([1, 1, 4])):
            damaged[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            damaged[at:at] = rng.randbytes(3)
        return bytes(damaged), False


class FaultyNetwork(PartedNetwork):
    """Loses, duplicates, delays and damages messages, and knows partitions."""

    weather: Weather
    codec: Codec
    through_codec = False
    duplicated_bytes = 0
    """Of copies that nobody sent: the network made them."""
    show: Callable[..., None]
    """Those who look on: see `NodeObservers.tell`."""
    on_offered: Callable[[NodeId, Sequence[NodeId], Message], None]
    on_undelivered: Callable[[NodeId, Undelivered], None]
    """A connection of this node may notice it."""

    def send(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        self.show("sent", src, to, body)
        if self.through_codec:
            body = self.codec.carry(body)
        if not self.weather.active or is_transfer(body):
            for dst in to:
                if not (self._online[dst] and self.connected(src, dst)):
                    self.on_undelivered(src, Undelivered(dst, body))
            super().send(src, to, body)
            return
        size_bytes = frame_bytes(body)
        for dst in to:
            if not self._online[dst]:
                self.on_undelivered(src, Undelivered(dst, body))
            if dst == src or not self._online[dst]:
                super().send(src, (dst,), body)
                continue
            self._accounts.send_control(src, type(body), 1, size_bytes)
            if self.passes(src, dst):
                self._scatter(dst, Received(src, body, size_bytes))
            else:
                self._lose(dst, Received(src, body, size_bytes), "a partition")

    def withdraw(self, node: NodeId, is_obsolete: Callable[[Message], bool]) -> None:
        """End the transfers of `node` that it holds obsolete."""
        if flows := [flow for flow in self.sharing.flows_of(node) if is_obsolete(flow.tag.body)]:
            self._cut(flows, declined_by=node)
            for flow in flows:
                self.on_undelivered(flow.dst, Undelivered(flow.dst, flow.tag.body))

    def _cut(self, flows: Sequence[Flow], declined_by: NodeId | None = None) -> None:
        super()._cut(flows)
        for flow in flows:
            lost = Undelivered(flow.dst, flow.tag.body, declined=flow.dst == declined_by)
            self.on_undelivered(flow.src, lost)

    def _transfer(self, src: NodeId, to: Sequence[NodeId], asked: int, body: Message) -> None:
        super()._transfer(src, to, asked, body)
        if hasattr(body, "model"):
            self.on_offered(src, to, body)

    def _arrive(self, dst: NodeId, received: Received) -> None:
        if self.weather.active:
            self._scatter(dst, received)
        else:
            super()._arrive(dst, received)

    def _scatter(self, dst: NodeId, received: Received) -> None:
        """Deliver as many copies as the weather leaves, each at its own moment."""
        if self.weather.is_damaged():
            self.codec.damage(received.body)
            self._lose(dst, received, "damaged")
        elif copies_s := self.weather.copies_s(received.src, dst):
            self.duplicated_bytes += (len(copies_s) - 1) * received.size_bytes
            for late_s in copies_s:
                self._kernel.at(self._arrival_s(dst, received) + late_s, dst, received)
        else:
            self._lose(dst, received, "lost")

    def _lose(self, dst: NodeId, received: Received, why: str) -> None:
        src, body = received.src, received.body
        self._accounts.lose(1, received.size_bytes)
        self.show("lost", src, dst, body, why)
        if not self.connected(src, dst):
            self.on_undelivered(src, Undelivered(dst, body))
