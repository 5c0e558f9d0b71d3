"""The protocols that can be simulated, by the name a spec gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from plexus.protocol.dpsgd import DpsgdParameters
from plexus.protocol.epidemic import EpidemicParameters
from plexus.protocol.fedavg import FedavgParameters
from plexus.protocol.gossip import GossipParameters
from plexus.protocol.parameters import PlexusParameters
from plexus.sim import builders, server
from plexus.sim.setting import Cast, Setting

JudgedBy: TypeAlias = Literal["global model", "models of nodes"]


class Entry(NamedTuple):
    """One protocol."""

    parameters: type[Struct]
    build: Callable[[Setting, Any], Cast]
    """(setting, parameters) -> its nodes."""
    judged_by: JudgedBy
    """What is evaluated: the model that a round ends with, or what each node has."""


PROTOCOLS: dict[str, Entry] = {
    "plexus": Entry(PlexusParameters, builders.plexus, "global model"),
    "gossip": Entry(GossipParameters, builders.gossip, "models of nodes"),
    "dpsgd": Entry(DpsgdParameters, builders.dpsgd, "models of nodes"),
    "epidemic": Entry(EpidemicParameters, builders.epidemic, "models of nodes"),
    "fedavg": Entry(FedavgParameters, server.fedavg, "global model"),
}
