"""Puts a simulated session together: roster, initial views, one node per device, the runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.roster import Roster
from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S, View
from plexus.rng import stream
from plexus.sim.runtime import Models, Observer, Runtime
from plexus.sim.sharing import RULES
from plexus.traces.api import Device, World


def plexus_session(
    world: World,
    parameters: PlexusParameters,
    models: Models,
    initial_model: Model,
    training_s: Callable[[NodeId], float],
    seed: int,
    observe: Observer,
    sharing: str = "shared",
    graceful_share: float = 1.0,
) -> Runtime:
    """A session in which every node starts with the same view: those who are there at time 0.

    That list is exchanged before training starts, like the model and the parameters (section III-A).
    """
    session_key = hashlib.blake2b(b"simulated session %d" % seed, digest_size=16).digest()
    roster = Roster.simulated(session_key, len(world))
    bandwidths = [advertised_bandwidth(device) for device in world.devices]
    present = world.availability.online_at(0.0).nonzero()[0].tolist()
    initial = View.of(len(world), [(node, bandwidths[node]) for node in present]).snapshot()
    nodes = [
        PlexusNode(
            me=node,
            parameters=parameters,
            roster=roster,
            view=View(initial),
            bandwidth_bytes_per_s=bandwidths[node],
            initial_model=initial_model,
            rng=stream(seed, "node", node, "protocol"),
        )
        for node in range(len(world))
    ]
    up = [device.up_bytes_per_s for device in world.devices]
    down = [device.down_bytes_per_s for device in world.devices]
    return Runtime(
        world=world,
        nodes=nodes,
        models=models,
        sharing=RULES[sharing](up, down),
        training_s=training_s,
        observe=observe,
        leave_rng=stream(seed, "leaves"),
        graceful_share=graceful_share,
    )


def advertised_bandwidth(device: Device) -> int:
    """What a node says of itself: an aggregator receives and sends, so the lesser of the two."""
    slower = min(device.up_bytes_per_s, device.down_bytes_per_s)
    return min(round(slower), MAX_BANDWIDTH_BYTES_PER_S)
