"""What becomes of each message: whether it passes, when its copies arrive, whether it is damaged."""

from __future__ import annotations

from math import prod
from random import Random

from plexus.protocol.messages import NodeId
from plexus.storm.kinds import Damage, Delay, Duplication, Fault, Loss, Partition, Slow

OF_THE_NETWORK = (Loss, Duplication, Delay, Damage, Partition, Slow)
LONGEST_BETWEEN_COPIES_S = 3.0


class Weather:
    """The faults of the network that are active now."""

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
