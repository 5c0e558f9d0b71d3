"""The protocols that can be simulated, by the name a spec gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from plexus.protocol.baselines.dpsgd import DpsgdParameters
from plexus.protocol.baselines.epidemic import EpidemicParameters
from plexus.protocol.baselines.fedavg import FedavgParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.parameters import PlexusParameters
from plexus.sim import protocols, server
from plexus.sim.session import Cast, Setting

JudgedBy: TypeAlias = Literal["global model", "models of nodes"]


class Entry(NamedTuple):
    """One protocol."""

    parameters: type[Struct]
    build: Callable[[Setting, Any], Cast]
    """(setting, parameters) -> its nodes."""
    judged_by: JudgedBy
    """What is evaluated: the model that a round ends with, or what each node has."""


PROTOCOLS: dict[str, Entry] = {
    "plexus": Entry(PlexusParameters, protocols.plexus, "global model"),
    "gossip": Entry(GossipParameters, protocols.gossip, "models of nodes"),
    "dpsgd": Entry(DpsgdParameters, protocols.dpsgd, "models of nodes"),
    "epidemic": Entry(EpidemicParameters, protocols.epidemic, "models of nodes"),
    "fedavg": Entry(FedavgParameters, server.fedavg, "global model"),
}
