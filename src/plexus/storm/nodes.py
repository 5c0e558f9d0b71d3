"""The nodes of a storm, and how a node that lost its process is made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plexus.protocol.api import Durable
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.gossip import GossipNode, GossipParameters
from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot, View
from plexus.rng import array_stream, stream
from plexus.sim.protocols import advertised_bandwidth, initial_view, session_key
from plexus.sim.runtime import Models
from plexus.sim.session import Setting
from plexus.sim.topologies import build_topology
from plexus.storm.kinds import Liar
from plexus.storm.labels import INITIAL, Labels
from plexus.storm.plan import Plan
from plexus.traces.world import Availability, Device, Latency, World

AnyNode = PlexusNode | GossipNode | DpsgdNode
Make = Callable[[NodeId, int, Durable | None, Snapshot | None], AnyNode]
"""(node, which of its lives, what its disk holds: state and view) -> the node."""

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
    return World(
        [Device(*device) for device in zip(training_ms.tolist(), up, down, strict=True)],
        Availability(present, np.inf),
        Latency(matrix_s, rng.integers(0, CITIES, plan.nodes)),
    )


def setting_of(plan: Plan, training_s: Callable[[NodeId], float], learning: Learning) -> Setting:
    models, initial = learning or (Labels(MODEL_BYTES), INITIAL)
    return Setting(world_of(plan), models, initial, training_s, plan.seed, plan.sharing)


def maker_of(plan: Plan, setting: Setting, roster: Roster) -> Make:
    """How the nodes of this storm are made, the first time and again."""
    world, parameters = setting.world, plan.parameters
    initial = initial_view(world)
    bandwidths = _advertised(plan, world)

    def common(node: NodeId, life: int, view: Snapshot | None) -> dict[str, Any]:
        return {
            "me": node,
            "view": View(view or initial),
            "bandwidth_bytes_per_s": bandwidths[node],
            "initial_model": setting.initial_model,
            "rng": stream(plan.seed, "node", node, "protocol", life),
        }

    match parameters:
        case PlexusParameters():
            return lambda node, life, durable, view: PlexusNode(
                parameters=parameters, roster=roster, durable=durable, **common(node, life, view)
            )
        case GossipParameters():
            return lambda node, life, durable, view: GossipNode(
                parameters=parameters, durable=durable, **common(node, life, view)
            )
        case DpsgdParameters():
            topology = build_topology(parameters, setting)
            duration_s, mixing = parameters.round_duration_s, parameters.mixing
            return lambda node, life, durable, view: DpsgdNode(
                node, topology, setting.initial_model, duration_s, mixing, durable
            )


def roster_of(plan: Plan) -> Roster:
    return Roster.simulated(session_key(plan.seed), plan.nodes)


def _advertised(plan: Plan, world: World) -> list[int]:
    bandwidths = [advertised_bandwidth(device) for device in world.devices]
    for fault in plan.faults:
        if isinstance(fault, Liar):
            for node in fault.nodes:
                bandwidths[node] = max(1, int(bandwidths[node] * fault.factor))
    return bandwidths
