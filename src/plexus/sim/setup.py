"""Puts a simulated session together: a setting, the nodes of a protocol, the runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.sim.registry import PROTOCOLS
from plexus.sim.runtime import Models, Observer, Runtime
from plexus.sim.setting import Cast, Setting, assemble
from plexus.traces.api import World


def simulated_session(
    protocol: str, parameters: Any, setting: Setting, observe: Observer
) -> tuple[Runtime, Cast]:
    """A session of the protocol called `protocol`, ready to run."""
    cast = PROTOCOLS[protocol].build(setting, parameters)
    return assemble(setting, cast, observe), cast


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
    """A session of Plexus, ready to run."""
    setting = Setting(world, models, initial_model, training_s, seed, sharing, graceful_share)
    return simulated_session("plexus", parameters, setting, observe)[0]
