"""Protocols of the user's own: `protocol.name = "package.module:name"` in a spec.

The name refers to what `own_protocol` below returns, or to an `Entry` made by hand where nodes are not all
alike (a server, a tuned round).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from plexus.checked import Source, convert
from plexus.errors import PlexusError
from plexus.loading import OwnSpec, load_own
from plexus.protocol.api import Node
from plexus.protocol.messages import Model, NodeId
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import View
from plexus.sim.protocols import PROTOCOLS, Entry, JudgedBy, places, plexus
from plexus.sim.session import Nodes, Setting


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a protocol that has nothing to set."""


@dataclass(frozen=True)
class Place:
    """What a node is given when it is made."""

    me: NodeId
    nodes: int
    """How many there are; they are numbered from 0."""
    parameters: Any
    initial_model: Model
    rng: Random
    """The node's own random numbers: the only ones it may use."""
    view: View
    """Those who are online at time 0, with their bandwidths; a copy for this node alone."""
    bandwidth_bytes_per_s: int


def own_protocol(
    node: Callable[..., Node],
    parameters: type[Struct] = NoParameters,
    judged_by: JudgedBy = "models of nodes",
) -> Entry:
    """A protocol whose nodes are all made by `node`, each from its place.

    `parameters` is a frozen struct of the keys that its table in a spec may have. A subclass of `PlexusNode`
    is a variation of Plexus, and has its parameters.
    """

    def build(setting: Setting, values: Any) -> Nodes:
        nodes, place = len(setting.world), places(setting)
        made = [node(Place(nodes=nodes, parameters=values, **place(me))) for me in range(nodes)]
        return Nodes(made, setting.world)

    def make(**place: Any) -> Node:
        return node(Place(**place))

    if isinstance(node, type) and issubclass(node, PlexusNode):
        return PROTOCOLS["plexus"]._replace(build=partial(plexus, honest=node), make=node)
    return Entry(parameters, build, judged_by, make)


def find(name: str, parameters: Any, base_dir: Path) -> tuple[Entry, Any]:
    """The protocol called `name`, and its parameters, checked; modules are searched in `base_dir`."""
    if not isinstance(parameters, OwnSpec):
        return PROTOCOLS[name], parameters
    found = load_own(name, base_dir, "protocol.name")
    if not isinstance(found, Entry):
        module, _, attribute = name.partition(":")
        is_what = "has no" if found is None else f"has a {type(found).__name__}, not a protocol,"
        raise PlexusError(
            f"protocol.name: module {module} {is_what} {attribute!r}: make it with plexus.own_protocol"
        )
    return found, convert(parameters.parameters, found.parameters, ("protocol",), Source())
