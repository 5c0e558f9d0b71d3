"""Federated averaging with a server: the reference that everybody knows (McMahan et al., 2017).

An idealisation, to show what a decentralised protocol is up against: the server never fails, its links
are as fast as the session says, and clients tell it when they come and go. Each round it draws a sample of
the clients it believes online, as large as a Plexus sample, and goes on with the same share of models
or after the same timeout; Plexus with a perfect aggregator, in other words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Annotated, Any

from msgspec import Meta, Struct

from plexus.protocol import api
from plexus.protocol.aggregation import models_needed
from plexus.protocol.facts import AggregationCompleted, ServerLost, TrainingStarted
from plexus.protocol.machine import Machine, to
from plexus.protocol.messages import ClientModel, GlobalModel, Joined, Left, Message, Model, NodeId
from plexus.protocol.parameters import require, require_duration
from plexus.protocol.view import JOINED, LEFT, View, event_number

START, ROUND = ("start", 0), ("round", 0)


class ServerParameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What protocols with a server have in common."""

    start_delay_s: float = 5.0
    """How long the server waits for clients to show up before the first round, in seconds."""

    server_mbps: float = 10_000.0
    """What the server can send, and receive, in megabits per second."""

    def __post_init__(self) -> None:
        require_duration("start_delay_s", self.start_delay_s)
        require(0 < self.server_mbps < 1e9, "server_mbps", self.server_mbps, "above 0")


class Server(Machine, ABC):
    """A node that never trains and never leaves. Protocols build on it."""

    _on_event = Machine._on_event | {
        api.WentOnline: to("_on_online"),
        api.WentOffline: to("ignore"),
        api.Aggregated: to("_on_aggregated"),
    }
    _on_message = Machine._on_message | {
        Joined: to("_on_joined"),
        Left: to("_on_left"),
        ClientModel: to("_on_model"),
    }
    _on_timeout = Machine._on_timeout | {"start": to("_on_start")}

    def __init__(
        self, me: NodeId, parameters: ServerParameters, view: View, initial_model: Model, rng: Random
    ) -> None:
        super().__init__(me)
        self._start_delay_s = parameters.start_delay_s
        self._view = view
        self._rng = rng
        self.k = 1
        self.model = initial_model
        self._is_aggregating = False
        self._silent: set[NodeId] = set()
        """Clients that were given up; not asked again before they are heard of."""

    def _on_online(self, _: api.WentOnline) -> None:
        self.set_timer(START, self._start_delay_s)

    def _on_start(self, _: int) -> None:
        self._begin()

    # What a protocol adds

    @abstractmethod
    def _begin(self) -> None:
        """The first model is to be trained, or there is a new one."""

    @abstractmethod
    def _on_model(self, src: NodeId, body: ClientModel) -> None:
        """A client has trained."""

    @abstractmethod
    def _outcome(self) -> dict[str, Any]:
        """What there is to say of the aggregation that was just done."""

    # What is common

    def _clients(self) -> list[NodeId]:
        return [client for client in self._view.actives() if client not in self._silent]

    def _on_joined(self, src: NodeId, joined: Joined) -> None:
        self._view.learn(src, event_number(joined.counter, JOINED))
        self._heard_of(src)

    def _on_left(self, src: NodeId, left: Left) -> None:
        self._view.learn(src, event_number(left.counter, LEFT))

    def _heard_of(self, client: NodeId) -> None:
        self._silent.discard(client)

    def _on_aggregated(self, event: api.Aggregated) -> None:
        if self._is_aggregating:
            made = {"round": event.round, "ordinal": event.round, "model": event.model}
            self.report(AggregationCompleted(**made, **self._outcome()))
            self.k, self.model = event.round, event.model
            self._is_aggregating = False
            self._begin()


class FedavgParameters(ServerParameters, frozen=True):
    """Federated averaging with an ideal server: each round it sends the model to a random sample of the
    clients online and averages what they make of it."""

    sample_size: int = 13
    """How many clients train in a round; with fewer online, all of them."""

    success_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """The share of a sample's models that completes a round."""

    aggregation_timeout_s: float = 300.0
    """The server goes on with the models it has this long after the first, in seconds. If none arrives
    for as long, it draws another sample."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sample_size >= 1, "sample_size", self.sample_size, "at least 1")
        require_duration("aggregation_timeout_s", self.aggregation_timeout_s)


class FedavgServer(Server):
    """Asks a sample, and averages what comes of it."""

    _on_timeout = Server._on_timeout | {"round": to("_on_round_timeout")}

    def __init__(self, me: NodeId, parameters: FedavgParameters, *rest: Any, **more: Any) -> None:
        super().__init__(me, parameters, *rest, **more)
        self._parameters = parameters
        self._is_idle = False
        """There was nobody to ask when the round should have begun."""
        self._sample: tuple[NodeId, ...] = ()
        self._models: dict[NodeId, tuple[Model, int]] = {}
        self._first_at = 0.0
        self._timed_out = False

    def _heard_of(self, client: NodeId) -> None:
        super()._heard_of(client)
        if self._is_idle:
            self._begin()

    def _begin(self) -> None:
        """Ask a new sample to train the model of round k."""
        clients = self._clients()
        self._models.clear()
        size = min(self._parameters.sample_size, len(clients))
        self._is_idle = size == 0
        self._sample = tuple(self._rng.sample(clients, size))
        if self._sample:
            self.send(self._sample, GlobalModel(self.k, self.model))
            self.set_timer(ROUND, self._parameters.aggregation_timeout_s)

    def _on_model(self, src: NodeId, body: ClientModel) -> None:
        # Of a client that was given up on in this round, too: it was only slow.
        if body.round == self.k and not self._is_aggregating:
            self._collect(src, body)
        self._heard_of(src)

    def _collect(self, src: NodeId, body: ClientModel) -> None:
        if not self._models:
            self._first_at = self.now
            self.set_timer(ROUND, self._parameters.aggregation_timeout_s)
        self._models[src] = (body.model, body.samples)
        needed = models_needed(self._parameters.success_fraction, len(self._sample))
        if len(self._models) >= needed:
            self.cancel_timer(ROUND)
            self._complete(timed_out=False)

    def _on_round_timeout(self, _: int) -> None:
        self._silent.update(client for client in self._sample if client not in self._models)
        if self._models:
            self._complete(timed_out=True)
        else:
            self._begin()

    def _complete(self, timed_out: bool) -> None:
        self._is_aggregating, self._is_idle = True, False
        self._timed_out = timed_out
        models, samples = zip(*self._models.values(), strict=True)
        self.outbox.append(api.Aggregate(self.k + 1, models, samples))

    def _outcome(self) -> dict[str, Any]:
        return {
            "models": len(self._models),
            "participants": len(self._sample),
            "timed_out": self._timed_out,
            "waited_s": self.now - self._first_at,
        }


class FedavgClient(Machine):
    """A client: trains what the server sends it."""

    _on_event = Machine._on_event | {
        api.WentOnline: to("_on_online"),
        api.WentOffline: to("_on_offline"),
        api.Trained: to("_on_trained"),
        api.PeerLost: to("_on_lost"),
    }
    _on_message = Machine._on_message | {GlobalModel: to("_on_global_model")}

    def __init__(
        self,
        me: NodeId,
        server: NodeId | None,
        bandwidth_bytes_per_s: int,
        durable: api.Durable | None = None,
    ) -> None:
        """Without a `server`, that is whoever sends a model, and knows by itself who is there."""
        super().__init__(me)
        self._server = server
        self._is_announced = server is None
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._counter = durable.counter if durable else 0
        self._k = 0

    def _on_online(self, _: api.WentOnline) -> None:
        self._announce(Joined(self._counter + 1, self._bandwidth_bytes_per_s))

    def _on_offline(self, _: api.WentOffline) -> None:
        self._announce(Left(self._counter + 1))

    def _announce(self, event: Joined | Left) -> None:
        if not self._is_announced:
            self._counter = event.counter
            self.outbox.append(api.Save(api.Durable(self._counter, 0, None)))
            self._tell_server(event)

    def _tell_server(self, body: Message) -> None:
        if self._server is not None:
            self.send((self._server,), body)

    def _on_lost(self, event: api.PeerLost) -> None:
        if event.node == self._server:
            self.report(ServerLost("nobody trains until it is back"))

    def _on_global_model(self, src: NodeId, body: GlobalModel) -> None:
        self._server = src
        if body.round >= self._k:
            self._k = body.round
            self.outbox.append(api.Train(body.round, body.model))
            self.report(TrainingStarted(body.round, body.round))

    def _on_trained(self, event: api.Trained) -> None:
        self._tell_server(ClientModel(event.round, event.samples, event.model))
