"""Puts the nodes of each protocol into a setting.

Protocols of the user's own are `protocol.name = "package.module:name"` in a spec. The name refers to what
`own_protocol` below returns, or to an `Entry` made by hand where nodes are not all alike (a server, a tuned
round).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from plexus.checked import Source, convert
from plexus.errors import PlexusError
from plexus.loading import OwnSpec, load_own
from plexus.protocol.api import Effect, Event, Node, Received
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.epidemic import EpidemicNode, EpidemicParameters
from plexus.protocol.baselines.fedavg import FedavgClient, ServerParameters
from plexus.protocol.baselines.gossip import GossipNode, GossipParameters
from plexus.protocol.baselines.peers import TimedParameters
from plexus.protocol.baselines.teleportation import TeleportationNode, TeleportationParameters
from plexus.protocol.baselines.topology import RandomDigraph
from plexus.protocol.liar import member
from plexus.protocol.messages import Model, NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.registry import PARAMETERS, SERVERS
from plexus.protocol.roster import Roster
from plexus.protocol.sparse import SparseView
from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S, Snapshot, View
from plexus.rng import RestingRandom, stream, stream_seed
from plexus.runs.result import RoundTuning
from plexus.sim.many import SPARSE, RestingView, made
from plexus.sim.session import Nodes, Setting, SymbolicModels, assemble
from plexus.sim.topologies import build_topology
from plexus.traces.world import Availability, Device, Latency, World, always_online

BYTES_PER_S_PER_MBPS = 1e6 / 8
ROUNDS_TO_TUNE = 10
"""Of Teleportation, in each of which few nodes take part."""
LONG_ROUND_S = 86_400.0
"""Nobody would wait longer for a round."""
STEP_S = 0.1
"""A duration is rounded up to a multiple of this."""


def plexus(setting: Setting, parameters: PlexusParameters, honest: type[PlexusNode] = PlexusNode) -> Nodes:
    require_time_to_answer(setting.world, parameters.ping_timeout_s)
    initial = initial_view(setting.world, parameters.signed_views)
    roster = Roster.simulated(session_key(setting.seed), len(setting.world), initial)
    given: dict[str, Any] = {"honest": honest, "parameters": parameters, "roster": roster}
    given["course"] = setting.course
    place = places(setting, initial)
    nodes = made(lambda me: member(setting.liars.get(me), **given, **place(me)), len(setting.world))
    return Nodes(nodes, setting.world)


def gossip(setting: Setting, parameters: GossipParameters) -> Nodes:
    require_time_to_answer(setting.world, parameters.ping_timeout_s)
    place = places(setting)
    nodes = made(lambda me: GossipNode(parameters=parameters, **place(me)), len(setting.world))
    return Nodes(nodes, setting.world)


def dpsgd(setting: Setting, parameters: DpsgdParameters) -> Nodes:
    """Synchronous rounds without churn; else of the given or a tuned duration."""
    topology = build_topology(parameters, len(setting.world), setting.seed, setting.base_dir)

    def nodes(setting: Setting, duration_s: float | None) -> Sequence[Node]:
        return [
            DpsgdNode(node, topology, setting.initial_model, duration_s, parameters.mixing)
            for node in range(len(setting.world))
        ]

    return _in_rounds(setting, parameters, nodes, topology.cycle)


def epidemic(setting: Setting, parameters: EpidemicParameters) -> Nodes:
    """Synchronous rounds without churn; else of the given or a tuned duration."""
    require_time_to_answer(setting.world, parameters.ping_timeout_s)
    draws = RandomDigraph(len(setting.world), parameters.fanout, session_key(setting.seed))
    nodes = _placed(partial(EpidemicNode, parameters=parameters, draws=draws))
    return _in_rounds(setting, parameters, nodes, draws.cycle)


def teleportation(setting: Setting, parameters: TeleportationParameters) -> Nodes:
    """Synchronous rounds without churn; else of the given or a tuned duration."""
    require_time_to_answer(setting.world, parameters.ping_timeout_s)
    roster = Roster.simulated(session_key(setting.seed), len(setting.world))
    nodes = _placed(partial(TeleportationNode, parameters=parameters, roster=roster))
    return _in_rounds(setting, parameters, nodes, ROUNDS_TO_TUNE)


def served(setting: Setting, parameters: ServerParameters, protocol: str) -> Nodes:
    """The clients are the world's devices; the server comes after them."""
    world = with_server(setting.world, BYTES_PER_S_PER_MBPS * parameters.server_mbps)
    me = len(setting.world)
    server = SERVERS[protocol](
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
    return Nodes([*clients, server], world, servers=1)


InRounds: TypeAlias = Callable[[Setting, float | None], Sequence[Node]]
"""(setting, how long a round takes) -> the nodes; None where rounds are synchronous."""


def _placed(make: Callable[..., Node]) -> InRounds:
    def nodes(setting: Setting, duration_s: float | None) -> Sequence[Node]:
        place = places(setting)
        return [make(round_duration_s=duration_s, **place(me)) for me in range(len(setting.world))]

    return nodes


def _in_rounds(
    setting: Setting, parameters: DpsgdParameters | TimedParameters, nodes: InRounds, cycle: int
) -> Nodes:
    duration_s = parameters.round_duration_s
    tuning: RoundTuning | None = None
    if duration_s is None and setting.world.availability.has_churn:
        tuning = _tuned(setting, nodes, cycle, parameters.transfers_complete)
        duration_s = tuning.round_duration_s
    return Nodes(nodes(setting, duration_s), setting.world, tuning=tuning)


class TimedNode(NamedTuple):
    """A node, and the times at which models reached it."""

    node: Node
    arrivals_s: list[float]

    def handle(self, now: float, event: Event) -> list[Effect]:
        if type(event) is Received and hasattr(event.body, "model"):
            self.arrivals_s.append(now - (event.body.round - 1) * LONG_ROUND_S)
        return self.node.handle(now, event)


def _tuned(setting: Setting, nodes: InRounds, rounds: int, share: float) -> RoundTuning:
    """How long a fixed round must be: measured in a short simulation without churn.

    All nodes begin a round at once, train, and send their models. The duration is the time after which the
    wanted share of all these transfers, in so many rounds, is complete (the paper: 99 %). The simulation has
    the same nodes, devices and network, rounds so long that nothing is cut, and models that are never
    computed.
    """
    world = setting.world
    slowest_s = max(map(setting.training_s, range(len(world))))
    if slowest_s >= LONG_ROUND_S:
        raise _impossible(f"one training takes {slowest_s / 3600:.3g} hours")
    quiet = replace(
        setting,
        world=World(world.devices, always_online(len(world)), world.latency),
        models=SymbolicModels(setting.models.model_bytes),
        initial_model=None,
    )
    arrivals_s: list[float] = []
    watched = [TimedNode(node, arrivals_s) for node in nodes(quiet, LONG_ROUND_S)]
    runtime = assemble(quiet, Nodes(watched, quiet.world), lambda now, node, fact: None)
    runtime.run(math.nextafter(rounds * LONG_ROUND_S, 0))
    begun, _ = runtime.accounts.messages["model"]
    if not begun:  # a node alone: rounds need time for nothing but training
        arrivals_s.append(slowest_s)
    arrivals_s.sort()
    needed = max(1, math.ceil(share * begun - 1e-9))
    if needed > len(arrivals_s):
        done = f"{len(arrivals_s)} of {begun} transfers"
        raise _impossible(f"after {LONG_ROUND_S / 3600:g} hours only {done} are complete")
    return RoundTuning(
        round_duration_s=round(math.ceil(arrivals_s[needed - 1] / STEP_S) * STEP_S, 6),
        transfers=begun,
        complete=share,
        slowest_s=arrivals_s[-1] if len(arrivals_s) >= begun else None,
    )


def _impossible(why: str) -> PlexusError:
    return PlexusError(f"protocol.round_duration_s cannot be tuned: {why}; give it in the spec")


def require_time_to_answer(world: World, ping_timeout_s: float) -> None:
    """A node whose answers cannot come in time is gone for the others, though it is there: it would go on
    alone, and nobody would know."""
    longest_s = world.latency.longest_round_trip_s
    if ping_timeout_s <= longest_s:
        raise PlexusError(
            f"protocol.ping_timeout_s is {ping_timeout_s:g}, but between two nodes there and back takes"
            f" {longest_s:.3g} s: they would take each other as offline; give them more time"
        )


def places(setting: Setting, initial: Snapshot | None = None) -> Callable[[NodeId], dict[str, Any]]:
    """What each node is given, whatever the protocol. All start with the same view: those who are there at
    time 0. That list is exchanged before training starts, like the model and the parameters (section III-A).
    """
    initial = initial or initial_view(setting.world)
    view_of: type[View] = RestingView
    random_of: Callable[[int], Any] = Random
    if len(setting.world) >= SPARSE:
        initial, view_of, random_of = SparseView(initial).snapshot(), SparseView, RestingRandom

    def place(me: NodeId) -> dict[str, Any]:
        return {
            "me": me,
            "view": view_of(initial),
            "bandwidth_bytes_per_s": advertised_bandwidth(setting.world.devices[me]),
            "initial_model": setting.initial_model,
            "rng": random_of(stream_seed(setting.seed, "node", me, "protocol")),
        }

    return place


def session_key(seed: int) -> bytes:
    """What names the session: the order of nodes in a round is derived from it."""
    return hashlib.blake2b(b"simulated session %d" % seed, digest_size=16).digest()


def initial_view(world: World, is_signed: bool = False) -> Snapshot:
    """Who is there at time 0."""
    present = world.availability.online_at(0.0).nonzero()[0].tolist()
    bandwidths = [advertised_bandwidth(device) for device in world.devices]
    return View.of(len(world), [(node, bandwidths[node]) for node in present], is_signed).snapshot()


def advertised_bandwidth(device: Device) -> int:
    """What a node says of itself: an aggregator receives and sends, so the lesser of the two."""
    slower = min(device.up_bytes_per_s, device.down_bytes_per_s)
    return min(round(slower), MAX_BANDWIDTH_BYTES_PER_S)


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


JudgedBy: TypeAlias = Literal["global model", "models of nodes"]


class Entry(NamedTuple):
    """One protocol that can be simulated."""

    parameters: type[Struct]
    build: Callable[[Setting, Any], Nodes]
    """(setting, parameters) -> its nodes."""
    judged_by: JudgedBy
    """What is evaluated: the model that a round ends with, or what each node has."""
    make: Callable[..., Node] | None = None
    """Makes the node of a live peer, of what a `Place` has; None where nodes are not all alike."""


PROTOCOLS: dict[str, Entry] = {
    "plexus": Entry(PARAMETERS["plexus"], plexus, "global model"),
    "gossip": Entry(PARAMETERS["gossip"], gossip, "models of nodes"),
    "dpsgd": Entry(PARAMETERS["dpsgd"], dpsgd, "models of nodes"),
    "epidemic": Entry(PARAMETERS["epidemic"], epidemic, "models of nodes"),
    "teleportation": Entry(PARAMETERS["teleportation"], teleportation, "models of nodes"),
    **{name: Entry(PARAMETERS[name], partial(served, protocol=name), "global model") for name in SERVERS},
}
"""By the name that a spec gives them."""


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
        there = [node(Place(nodes=nodes, parameters=values, **place(me))) for me in range(nodes)]
        return Nodes(there, setting.world)

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
