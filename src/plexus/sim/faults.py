"""Faults that an experiment asks for: cuts, crashes, slow links, silence; for certain nodes and a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

from plexus.protocol.api import Aggregate, Collect, Report
from plexus.protocol.facts import AggregationCompleted, AggregatorChosen
from plexus.protocol.messages import Message, NodeId
from plexus.rng import stream
from plexus.sim.network import Network, is_transfer
from plexus.sim.runtime import Runtime

if TYPE_CHECKING:
    from plexus.sim.session import Nodes, Setting


class PartedNetwork(Network):
    """Carries nothing between nodes that cannot reach each other. A node always reaches itself."""

    passes: Callable[[NodeId, NodeId], bool]
    """Whether a message gets from one to the other at the moment."""
    connected: Callable[[NodeId, NodeId], bool]
    """Whether something can be transferred."""
    send = Network._send

    def cut_parted(self) -> None:
        """End the transfers between nodes that something has come between."""
        under_way = chain.from_iterable(map(self.sharing.sent_by, range(len(self.sharing))))
        self._cut([flow for flow in under_way if not self.connected(flow.src, flow.dst)])

    def _reached(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> list[NodeId]:
        reaches = self.connected if is_transfer(body) else self.passes
        return [dst for dst in super()._reached(src, to, body) if reaches(src, dst)]


@dataclass(frozen=True, eq=False)
class PlannedFault:
    """What goes wrong, from when until when, and for whom; a spec's `faults` say what the kinds mean.

    Of two that are equal each counts.
    """

    kind: str
    from_s: float
    until_s: float
    nodes: frozenset[NodeId] | None
    """None: whoever aggregates, each from when that is known until the fault ends."""
    factor: float = 1.0


def drawn_nodes(share: float, nodes: int, seed: int, fault: int) -> frozenset[NodeId]:
    """The nodes that the fault of this number hits, at least one."""
    count = max(1, round(share * nodes))
    return frozenset(stream(seed, "faults", fault).sample(range(nodes), count))


class FaultyRuntime(Runtime):
    """The simulator's runtime, and what is to go wrong in it."""

    network_type = PartedNetwork
    network: PartedNetwork

    def __init__(
        self, faults: Sequence[PlannedFault], setting: Setting, taking_part: Nodes, *told: Any
    ) -> None:
        super().__init__(setting, taking_part, *told)
        self.network.passes = self.network.connected = self._passes
        self._availability = taking_part.world.availability
        self._servers = range(len(self.nodes) - taking_part.servers, len(self.nodes))
        self._hit: dict[PlannedFault, set[NodeId]] = {}
        """Of the faults that last, whom they concern by now."""
        self.struck: dict[PlannedFault, set[NodeId]] = {}
        """The same of all that have begun, over or not."""
        self._aggregates: dict[NodeId, int] = {}
        """Who aggregates or will soon, and for which round."""
        for fault in faults:
            self.call_at(fault.from_s, partial(self._begin, fault))
            self.call_at(fault.until_s, partial(self._end, fault))

    # Who reaches whom

    def _passes(self, src: NodeId, dst: NodeId) -> bool:
        for fault, hit in self._hit.items():
            if fault.kind == "partition" and (src in hit) != (dst in hit):
                return False
            if fault.kind == "silence" and src in hit:
                return False
        return True

    def bring_online(self, node: NodeId) -> None:
        """Not while a crash lasts, whatever the node's trace says."""
        if not any(fault.kind == "crash" and node in hit for fault, hit in self._hit.items()):
            super().bring_online(node)

    # Faults come and go

    def _begin(self, fault: PlannedFault) -> None:
        self._hit[fault] = self.struck[fault] = set()
        chosen = [*self._aggregates, *self._servers] if fault.nodes is None else sorted(fault.nodes)
        self._strike(fault, chosen)

    def _strike(self, fault: PlannedFault, nodes: Sequence[NodeId]) -> None:
        hit = self._hit.get(fault)
        struck = [] if hit is None else [node for node in dict.fromkeys(nodes) if node not in hit]
        if hit is None or not struck:
            return
        hit.update(struck)
        for node in struck:
            if self._observer is not None:
                self._observer.struck(self.kernel.now, node, fault.kind, fault.until_s)
            if fault.kind == "crash":
                self.crash(node)
            elif fault.kind == "slow-link":
                self._resize(node)
        if fault.kind in ("partition", "silence"):
            self.network.cut_parted()

    def _end(self, fault: PlannedFault) -> None:
        hit = sorted(self._hit.pop(fault))
        if fault.kind == "slow-link":
            for node in hit:
                self._resize(node)
        elif fault.kind == "crash":
            is_online = self._availability.online_at(self.kernel.now)
            for node in hit:
                if is_online[node]:
                    self.bring_online(node)

    def _resize(self, node: NodeId) -> None:
        factors = (fault.factor for fault, hit in self._hit.items() if node in hit)
        self.network.resize(node, prod(factors))

    # Who aggregates

    def _report(self, node: NodeId, effect: Report) -> None:
        fact = effect.fact
        if isinstance(fact, AggregatorChosen):
            self._expect(fact.aggregator, fact.round)
        elif isinstance(fact, AggregationCompleted):
            left = ((who, k) for who, k in self._aggregates.items() if k > fact.round)
            self._aggregates = dict(left)
        super()._report(node, effect)

    def _collect(self, node: NodeId, effect: Collect) -> None:
        self._expect(node, effect.round)
        super()._collect(node, effect)

    def _aggregate(self, node: NodeId, effect: Aggregate) -> None:
        self._expect(node, effect.round)
        super()._aggregate(node, effect)

    def _expect(self, aggregator: NodeId, round: int) -> None:
        """It is hit at this very moment, but after what is being done now."""
        self._aggregates[aggregator] = round
        for fault, hit in self._hit.items():
            if fault.nodes is None and aggregator not in hit:
                self.call_at(self.kernel.now, partial(self._strike, fault, (aggregator,)))
