"""What a simulated session is made from, and who takes part in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from plexus.protocol.api import Node
from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import ENDLESS, Course
from plexus.runs.result import RoundTuning
from plexus.sim.faults import FaultyRuntime, PlannedFault
from plexus.sim.network import Observer
from plexus.sim.runtime import Models, OnFact, Runtime
from plexus.traces.world import World


@dataclass(frozen=True)
class Setting:
    """Everything but the protocol."""

    world: World
    models: Models
    initial_model: Model
    training_s: Callable[[NodeId], float]
    """How long a training takes on a node's device."""
    seed: int
    sharing: str = "shared"
    graceful_share: float = 1.0
    liars: Mapping[NodeId, str] = field(default_factory=dict)
    """Nodes that lie, and how."""
    course: Course = ENDLESS
    """When the session begins and ends."""
    base_dir: Path = Path()
    """What relative paths in parameters are relative to."""


@dataclass(frozen=True)
class Nodes:
    """The nodes that a protocol puts into a setting."""

    nodes: Sequence[Node]
    world: World
    """The setting's, and the devices of servers after it."""
    servers: int = 0
    """How many nodes, the last ones, are not devices of the setting."""
    tuning: RoundTuning | None = None
    """How the duration of rounds was found, if it was."""


def assemble(
    setting: Setting,
    nodes: Nodes,
    observe: OnFact,
    observer: Observer | None = None,
    faults: Sequence[PlannedFault] = (),
) -> Runtime:
    """The runtime of these nodes."""
    kind = partial(FaultyRuntime, faults) if faults else Runtime
    return kind(setting, nodes, observe, observer)


class Symbol(NamedTuple):
    """A model that is a number and nothing else."""

    number: int
    """Its place in the order in which the models of a session were asked for."""


class SymbolicModels:
    """Models that are never computed, where only time and traffic matter: symbols of a certain size."""

    def __init__(self, model_bytes: int) -> None:
        self.model_bytes = model_bytes
        self._numbers = count()

    def initial(self) -> Symbol:
        return Symbol(-1)

    def train(self, *_: Any, **__: Any) -> Symbol:
        return Symbol(next(self._numbers))

    mean = merge = train

    def samples(self, node: int) -> int:
        return 1
