"""Nodes in a setting: what does not fit the world they are put into is refused."""

from __future__ import annotations

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.protocol.baselines.epidemic import EpidemicParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.parameters import PlexusParameters
from plexus.sim.protocols import PROTOCOLS
from plexus.sim.session import Setting, SymbolicModels
from plexus.traces.world import Device, Latency, World, always_online

ONE_WAY_S = np.array([[0.0, 0.2, 9.0], [0.3, 0.0, 9.0], [9.0, 9.0, 0.0]])


def setting(city_of: list[int]) -> Setting:
    devices = [Device(10.0, 1e6, 1e6) for _ in city_of]
    world = World(devices, always_online(len(city_of)), Latency(ONE_WAY_S, np.array(city_of)))
    return Setting(world, SymbolicModels(1000), None, lambda node: 10.0, seed=1)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("plexus", PlexusParameters), ("gossip", GossipParameters), ("epidemic", EpidemicParameters)],
)
def test_pings_must_have_time_to_be_answered(name: str, parameters: type) -> None:
    """There and back: 0.2 s and 0.3 s. Where nobody is, it may take as long as it likes."""
    build = PROTOCOLS[name].build
    build(setting([0, 0, 1, 1]), parameters(ping_timeout_s=0.51))
    complaint = "protocol.ping_timeout_s is 0.5, but between two nodes there and back takes 0.5 s"
    with pytest.raises(PlexusError, match=complaint):
        build(setting([0, 0, 1, 1]), parameters(ping_timeout_s=0.5))
    build(setting([1, 1]), parameters(ping_timeout_s=0.01))
