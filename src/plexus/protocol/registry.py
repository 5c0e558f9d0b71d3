"""The protocols by the name a spec gives them, and the parameters that each one has."""

from __future__ import annotations

from msgspec import Struct

from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.epidemic import EpidemicParameters
from plexus.protocol.baselines.fedavg import FedavgParameters, FedavgServer, Server
from plexus.protocol.baselines.fedbuff import FedbuffParameters, FedbuffServer
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.baselines.teleportation import TeleportationParameters
from plexus.protocol.parameters import PlexusParameters

PARAMETERS: dict[str, type[Struct]] = {
    "plexus": PlexusParameters,
    "gossip": GossipParameters,
    "dpsgd": DpsgdParameters,
    "epidemic": EpidemicParameters,
    "teleportation": TeleportationParameters,
    "fedavg": FedavgParameters,
    "fedbuff": FedbuffParameters,
}
SERVERS: dict[str, type[Server]] = {"fedavg": FedavgServer, "fedbuff": FedbuffServer}
"""Of the protocols that have one."""
