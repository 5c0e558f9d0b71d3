"""The nodes of other protocols than Plexus, as live peers run them: the same that the simulator drives.

Gossip Learning and Epidemic Learning know others by their own view. D-PSGD, federated averaging and protocols
of one's own know them as seats, 0 to n - 1: live, a seat is the place of a node's key among those whom the
authority has admitted. `Seated` has what it takes to reach them on a network, and keeps their newest model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plexus.errors import PlexusError
from plexus.protocol import api, wire
from plexus.protocol.baselines.epidemic import EpidemicNode
from plexus.protocol.baselines.fedavg import FedavgClient
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.baselines.peers import PeerNode, PeerParameters
from plexus.protocol.baselines.teleportation import TeleportationNode
from plexus.protocol.baselines.topology import FullyConnected
from plexus.protocol.facts import AggregationCompleted, ModelUpdated
from plexus.protocol.liar import member
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Joined, Left, Message, Model, NodeId
from plexus.protocol.parameters import Course
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.registry import SERVERS
from plexus.protocol.roster import Roster
from plexus.protocol.view import JOINED, View, counter_of

ON_A_CLOCK = ("dpsgd", "epidemic", "teleportation")
"""Their rounds begin by a clock that all peers share: it counts from the founding of the session."""
TOLD = (api.WentOnline, api.WentOffline, api.Received, api.TimerFired, api.Trained, api.Aggregated)
"""What a node that is no `Machine` is told: docs/write-a-protocol.md has no more."""
STILL_S, MISSED = 1800.0, 10
"""Without a watchdog, so many seconds, and so many periods or rounds, without progress are a problem."""
INNER = "its own "
"""Before the names of timers that are not those of membership."""


class LiveProtocol(Struct, frozen=True, kw_only=True):
    name: str = "plexus"
    parameters: Any
    nodes: int
    """Of the session: seats, without a server."""
    make: Callable[..., api.Node] | None = None
    """(me, nodes, parameters, initial_model, rng, view, bandwidth_bytes_per_s) -> a node that knows seats; a
    subclass of `PlexusNode` is a variation of Plexus."""
    is_server: bool = False

    @property
    def patience_s(self) -> float:
        """For how long a peer that is well may see no progress; a client of many is asked seldom."""
        if self.variation is not None:
            return float(2 * self.parameters.watchdog_s)
        if self.name in SERVERS and not self.is_server:
            return math.inf
        periods = (getattr(self.parameters, name, None) or 0.0 for name in ("period_s", "round_duration_s"))
        return max(STILL_S, MISSED * max(periods))

    @property
    def variation(self) -> type[PlexusNode] | None:
        """Of Plexus, or Plexus itself."""
        if self.name == "plexus":
            return PlexusNode
        return self.make if isinstance(self.make, type) and issubclass(self.make, PlexusNode) else None


def complaint(name: str, parameters: Any, is_server: bool = False) -> str | None:
    """Why this cannot run live, if it cannot."""
    if name in ON_A_CLOCK and parameters.round_duration_s is None:
        return (
            "protocol.round_duration_s is not set: live, a round of this protocol has to end by the clock, as"
            " somebody who is gone would be waited for for ever"
        )
    if is_server and name not in SERVERS:
        return f"--server is for protocol {' or '.join(SERVERS)}; {name} has no server"
    return None


def plexus(protocol: LiveProtocol, lie: str | None, course: Course, **given: Any) -> PlexusNode:
    """The node of Plexus, or of a variation; `given` is what each node is given."""
    assert protocol.variation is not None
    # Live, members may lie, and bytes are real.
    parameters = replace(protocol.parameters, signed_views=True, views="lacking")
    return member(lie, honest=protocol.variation, parameters=parameters, course=course, **given)


def other(protocol: LiveProtocol, keys: Collection[bytes], roster: Roster, **given: Any) -> PeerNode:
    """The node of another protocol; `keys` are those of all admitted nodes."""
    known = {"parameters": protocol.parameters, "roster": roster, **given}
    if protocol.name == "gossip":
        return GossipNode(**known)
    duration_s = getattr(protocol.parameters, "round_duration_s", None)
    if protocol.name == "epidemic":
        return EpidemicNode(draws=FullyConnected(1), round_duration_s=duration_s, **known)
    if protocol.name == "teleportation":
        return TeleportationNode(round_duration_s=duration_s, **known)
    if protocol.name == "dpsgd" and len(keys) != protocol.nodes:
        raise PlexusError(
            f"the topology of D-PSGD is one of all {protocol.nodes} nodes, and {len(keys)} are invited:"
            " invite all before the first one starts, and take back nobody's certificate"
        )
    seats = [roster.number(key) for key in sorted(keys)]
    return Seated(protocol, seats, roster=roster, **given)


class Seated(PeerNode):
    """A node that knows others by their seats, and keeps nothing of its own."""

    def __init__(
        self,
        protocol: LiveProtocol,
        seats: Sequence[NodeId],
        initial_model: Model,
        rng: Random,
        durable: api.Durable,
        **world: Any,
    ) -> None:
        """`world` is for `PeerNode`; the model that counts is the durable one."""
        parameters = PeerParameters(advertise_size=max(len(seats), 1))
        super().__init__(parameters=parameters, rng=rng, counter=durable.counter, **world)
        self._numbers = list(seats)
        self._seats = {number: seat for seat, number in enumerate(seats)}
        self._known: dict[NodeId, int] = {}
        """The newest event of others that the node was told of."""
        self._round, self._model = durable.round, durable.model
        self._inner = self._made(protocol, durable, rng)

    def _made(self, protocol: LiveProtocol, durable: api.Durable, rng: Random) -> api.Node:
        seat, nodes, parameters = self._seat(self.me), len(self._numbers), protocol.parameters
        bandwidth_bytes_per_s = self.membership.bandwidth_bytes_per_s
        if protocol.is_server:
            server = SERVERS[protocol.name](seat, parameters, View.of(nodes), durable.model, rng)
            server.k = max(1, durable.round)
            return server
        if protocol.name in SERVERS:
            return FedavgClient(seat, None, bandwidth_bytes_per_s)
        assert protocol.make is not None
        return protocol.make(
            me=seat,
            nodes=nodes,
            parameters=parameters,
            initial_model=durable.model,
            rng=rng,
            view=View.of(nodes, [(each, 0) for each in range(nodes)]),
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )

    def handle(self, now: float, event: api.Event) -> list[api.Effect]:
        if isinstance(event, api.WentOffline):
            return self._told(now, event) + super().handle(now, event)
        if not self._is_mine(event):
            return self._told(now, event)
        own = super().handle(now, event)
        if not isinstance(event, api.Received | api.TimerFired):
            own += self._told(now, event)
        return own + self._news(now)

    @property
    def messages(self) -> Collection[type[Message]]:
        inner = self._inner.messages if isinstance(self._inner, Machine) else wire.own_kinds()
        return {*super().messages, *inner}

    def _is_mine(self, event: api.Event) -> bool:
        if isinstance(event, api.Received):
            return type(event.body) in self._on_message
        if isinstance(event, api.TimerFired):
            return event.key[0] in self._on_timeout
        return type(event) in self._on_event

    def _news(self, now: float) -> list[api.Effect]:
        """What a node makes of who came and went, if it wants to know: a server does."""
        inner, view = self._inner, self.membership.view
        if not isinstance(inner, Machine) or Joined not in inner.messages:
            return []
        effects = []
        for number in range(1, len(view)):
            event = view.event_of(number)
            if event and event != self._known.get(number):
                self._known[number] = event
                counter, is_there = counter_of(event), event & 3 == JOINED
                told = api.Received(number, Joined(counter, 0) if is_there else Left(counter))
                effects += self._told(now, told)
        return effects

    def _told(self, now: float, event: api.Event) -> list[api.Effect]:
        """What the node itself makes of an event, if it is one for it."""
        inner = self._inner
        if isinstance(event, api.Received):
            if isinstance(inner, Machine) and type(event.body) not in inner.messages:
                return []
            event = replace(event, src=self._seat(event.src))
        elif isinstance(event, api.TimerFired):
            name, number = event.key
            if not name.startswith(INNER):
                return []
            event = api.TimerFired((name.removeprefix(INNER), number))
        elif isinstance(event, api.PeerLost | api.Expelled):
            event = replace(event, node=self._seat(event.node))
        elif isinstance(event, api.Undelivered):
            event = replace(event, to=self._seat(event.to))
        if not isinstance(inner, Machine) and not isinstance(event, TOLD):
            return []
        return [each for effect in inner.handle(now, event) for each in self._outward(effect)]

    def _outward(self, effect: api.Effect) -> list[api.Effect]:
        match effect:
            case api.Send(to, body):
                known = [self._numbers[seat] for seat in to if seat < len(self._numbers)]
                return [api.Send(tuple(known), body)]
            case api.SetTimer((name, number), delay_s):
                return [api.SetTimer((INNER + name, number), delay_s)]
            case api.CancelTimer((name, number)):
                return [api.CancelTimer((INNER + name, number))]
            case api.Report(ModelUpdated(round=k, model=model) | AggregationCompleted(round=k, model=model)):
                self._round, self._model = k, model
                return [self._state(), effect]
            case api.Save():
                return []  # of what is kept here
        return [effect]

    def _seat(self, number: NodeId) -> NodeId:
        """Of somebody who was admitted later, one behind all others."""
        if number not in self._seats:
            self._seats[number] = len(self._numbers)
            self._numbers.append(number)
        return self._seats[number]

    def _state(self) -> api.Save:
        view = self.membership.view.snapshot()
        return api.Save(api.Durable(self.membership.counter, self._round, self._model, view, self._round))

    def save(self) -> None:
        self.outbox.append(self._state())

    def on_start(self) -> None:
        """The node itself is told next."""
