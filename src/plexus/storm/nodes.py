"""The nodes of a storm, and how a node that lost its process is made anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from plexus.protocol.api import Durable
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.gossip import GossipNode, GossipParameters
from plexus.protocol.liar import member
from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot, View
from plexus.rng import array_stream, stream
from plexus.sim.protocols import advertised_bandwidth
from plexus.sim.runtime import Models
from plexus.sim.session import Setting
from plexus.sim.topologies import build_topology
from plexus.storm.plan import Liar, Plan
from plexus.traces.world import Availability, Device, Latency, World


class Label(NamedTuple):
    """A model that tells where it comes from, which is what checkers look at instead of weights: made by
    `node` in `round`, with a number of its own."""

    kind: str
    node: int
    round: int
    number: int

    def __str__(self) -> str:
        return "m0" if self.kind == "initial" else f"{self.kind} #{self.number}"


INITIAL = Label("initial", -1, 0, 0)


class Labels:
    """Every model is a label, and no two trainings give the same one."""

    def __init__(self, model_bytes: int) -> None:
        self.model_bytes = model_bytes
        self._numbers = count(1)

    def train(self, model: Any, node: int, round: int) -> Label:
        return Label("trained", node, round, next(self._numbers))

    def mean(self, models: Sequence[Label], *_: Any, **__: Any) -> Label:
        return Label("mean", -1, max(model.round for model in models) + 1, next(self._numbers))

    def merge(self, models: Sequence[Label], weights: Sequence[float]) -> Label:
        return Label("merged", -1, max(model.round for model in models), next(self._numbers))

    def samples(self, node: int) -> int:
        return 10 + node


AnyNode = PlexusNode | GossipNode | DpsgdNode
Make = Callable[[NodeId, int, Durable | None], AnyNode]
"""(node, which of its lives, what its disk holds) -> the node."""

Learning = tuple[Models, Model] | None
"""Real models and the first of them, where a storm is to learn something; else models are labels."""

MODEL_BYTES = 200_000
CITIES = 5


def world_of(plan: Plan) -> World:
    """Devices, distances, and who is there at the beginning."""
    rng = array_stream(plan.seed, "storm", "world")
    up, down = rng.lognormal(np.log(4e5), 0.8, (2, plan.nodes))
    training_ms = rng.uniform(2000, 8000, plan.nodes)
    matrix_s = rng.uniform(0.005, 0.15, (CITIES, CITIES))
    always, never = np.array([[0.0, np.inf]]), np.empty((0, 2))
    present = [always] * plan.at_start + [never] * (plan.nodes - plan.at_start)
    devices = [Device(*device) for device in zip(training_ms.tolist(), up, down, strict=True)]
    cities = rng.integers(0, CITIES, plan.nodes)
    return World(devices, Availability(present, np.inf), Latency(matrix_s, cities))


def maker_of(plan: Plan, setting: Setting, roster: Roster, initial: Snapshot) -> Make:
    """How the nodes of this storm are made, the first time and again; `initial` is whom all know at first."""
    world, parameters = setting.world, plan.parameters
    bandwidths = [advertised_bandwidth(device) for device in world.devices]
    for liars in (fault for fault in plan.faults if isinstance(fault, Liar)):
        for node in liars.nodes:
            bandwidths[node] = max(1, int(bandwidths[node] * liars.factor))

    def common(node: NodeId, life: int, durable: Durable | None) -> dict[str, Any]:
        return {
            "me": node,
            "durable": durable,
            "view": View(durable.view if durable else initial),
            "bandwidth_bytes_per_s": bandwidths[node],
            "initial_model": setting.initial_model,
            "rng": stream(plan.seed, "node", node, "protocol", life),
        }

    match parameters:
        case PlexusParameters():
            own: dict[str, Any] = {"parameters": parameters, "roster": roster}
            return lambda node, *of: member(plan.liars.get(node), **own, **common(node, *of))
        case GossipParameters():
            return lambda *of: GossipNode(parameters=parameters, **common(*of))
        case DpsgdParameters():
            topology = build_topology(parameters, len(setting.world), setting.seed, setting.base_dir)
            duration_s, mixing = parameters.round_duration_s, parameters.mixing
            return lambda node, life, durable: DpsgdNode(
                node, topology, setting.initial_model, duration_s, mixing, durable
            )
