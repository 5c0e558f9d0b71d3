"""Small simulated sessions for tests: uniform devices, models that are labels, scripted availability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.protocol.parameters import ENDLESS, Course
from plexus.sim.faults import PlannedFault
from plexus.sim.protocols import PROTOCOLS
from plexus.sim.runtime import Runtime
from plexus.sim.session import Setting, assemble
from plexus.traces.world import Availability, Device, Latency, World, always_online

TRAINING_S = 10.0
LATENCY_S = 0.05
MODEL_BYTES = 100_000
UPLINK = 1_000_000.0


class Labels:
    """Models as nested tuples that tell their history."""

    model_bytes = MODEL_BYTES

    def train(self, model: Any, node: int, round: int) -> Any:
        return ("trained", node, round)

    def mean(
        self,
        models: Sequence[Any],
        samples: Sequence[int],
        changes: Sequence[Any] = (),
        change_samples: Sequence[int] = (),
    ) -> Any:
        return ("mean", *models, *changes)

    def merge(self, models: Sequence[Any], weights: Sequence[float]) -> Any:
        return ("merged", tuple(zip(models, weights, strict=True)))

    def samples(self, node: int) -> int:
        return 100


class Session:
    """A runtime with everything it reported."""

    def __init__(
        self,
        nodes: int,
        availability: Availability | None = None,
        seed: int = 1,
        graceful_share: float = 1.0,
        sharing: str = "shared",
        protocol: str = "plexus",
        training_s: Callable[[int], float] = lambda _: TRAINING_S,
        faults: Sequence[PlannedFault] = (),
        course: Course = ENDLESS,
        **parameters: Any,
    ) -> None:
        rng = np.random.default_rng(seed)
        devices = [Device(20.0, UPLINK * f, UPLINK * f) for f in rng.uniform(0.5, 2, nodes)]
        latency = Latency(np.full((1, 1), LATENCY_S), np.zeros(nodes, np.intp))
        world = World(devices, availability or always_online(nodes), latency)
        self.facts: list[tuple[float, int, Fact]] = []
        setting = Setting(
            world, Labels(), "initial", training_s, seed, sharing, graceful_share, course=course
        )
        entry = PROTOCOLS[protocol]
        self.cast = entry.build(setting, entry.parameters(**parameters))
        self.runtime: Runtime = assemble(
            setting, self.cast, lambda now, node, fact: self.facts.append((now, node, fact)), faults=faults
        )

    def run(self, until_s: float) -> Session:
        self.runtime.run(until_s)
        return self

    def of(self, kind: type[Fact]) -> list[tuple[float, int, Any]]:
        return [(now, node, fact) for now, node, fact in self.facts if type(fact) is kind]

    @property
    def rounds(self) -> list[int]:
        """The rounds aggregated so far, in order, as people count them."""
        return [fact.ordinal for _, _, fact in self.of(AggregationCompleted)]


def sessions(*rows: Sequence[tuple[float, float]]) -> Availability:
    """One list of (online from, until) per node, never repeating."""
    return Availability([np.array(r, float).reshape(-1, 2) for r in rows], np.inf)


def in_flight_bytes(runtime: Runtime) -> float:
    """What the transfers under way have moved so far."""
    sharing = runtime.network.sharing
    flows = [flow for node in range(len(sharing)) for flow in sharing.sent_by(node)]
    now = runtime.kernel.now
    return sum(flow.sent_bytes + flow.rate_bytes_per_s * (now - flow.since_s) for flow in flows)
