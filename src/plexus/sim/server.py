"""A world with a server in it: for federated averaging."""

from __future__ import annotations

import math

import numpy as np

from plexus.protocol.baselines.fedavg import FedavgClient, FedavgParameters, FedavgServer
from plexus.protocol.view import View
from plexus.rng import stream
from plexus.sim.protocols import advertised_bandwidth, initial_view
from plexus.sim.session import Cast, Setting
from plexus.traces.world import Availability, Device, Latency, World

BYTES_PER_S_PER_MBPS = 1e6 / 8


def fedavg(setting: Setting, parameters: FedavgParameters) -> Cast:
    """The clients are the world's devices; the server comes after them."""
    world = with_server(setting.world, BYTES_PER_S_PER_MBPS * parameters.server_mbps)
    me = len(setting.world)
    server = FedavgServer(
        me=me,
        parameters=parameters,
        view=View(initial_view(setting.world)),
        initial_model=setting.initial_model,
        rng=stream(setting.seed, "node", me, "protocol"),
    )
    clients = [
        FedavgClient(client, server=me, bandwidth_bytes_per_s=advertised_bandwidth(device))
        for client, device in enumerate(setting.world.devices)
    ]
    return Cast([*clients, server], world, servers=1)


def with_server(world: World, bytes_per_s: float) -> World:
    """`world` and one more device: always online, in the city that is nearest to all others."""
    availability, latency = world.availability, world.latency
    always = np.array([[0.0, math.inf]])
    nearest = int(np.argmin(latency.matrix_s.mean(axis=0) + latency.matrix_s.mean(axis=1)))
    return World(
        # It trains nothing; that it would take for ever makes a mistake show.
        [*world.devices, Device(math.inf, bytes_per_s, bytes_per_s)],
        Availability([*availability.sessions, always], np.append(availability.periods_s, math.inf)),
        Latency(latency.matrix_s, np.append(latency.city_of, nearest), latency.cities),
    )
