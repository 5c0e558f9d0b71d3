"""Gossip Learning: send the model to a random peer, merge what arrives, train (Hegedűs et al., 2019).

Nobody waits for anybody. Every period a node sends its model to one peer; a model that arrives is
merged with the node's own, each counting by its age, and the result is trained. The age is the number
of trainings behind a model: the greater of the two goes on. A model that arrives while the node is
training waits until that is done; of several, the newest.
"""

from __future__ import annotations

from typing import Any

from plexus.protocol.api import Aggregated, Durable, Merge, Train, Trained
from plexus.protocol.baselines.peers import PeerNode, PeerParameters
from plexus.protocol.facts import ModelUpdated
from plexus.protocol.machine import to
from plexus.protocol.messages import GossipModel, Model, NodeId
from plexus.protocol.parameters import require_duration

SEND = ("send", 0)
MAX_AGE = 2**40 - 1
"""The largest that a message says. Somebody may claim it; who comes to it gets no older."""


class GossipParameters(PeerParameters, frozen=True):
    """Gossip Learning: every so often each node sends its model to a random peer, which merges it with its
    own and trains."""

    period_s: float = 60.0
    """How often a node sends its model, in seconds; the paper's round timeout. Nodes are out of phase."""

    overlapping: bool = False
    """Whether a model that arrives during a training is merged at once, as in the authors' code: the
    training begins anew, with what that gives."""

    judge_merged: bool = False
    """Whether a node is judged by the model that it holds at that moment, as in the authors' code, though
    that is merged and not yet trained. Default: by what it trained last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_duration("period_s", self.period_s)


class GossipNode(PeerNode):
    _on_event = PeerNode._on_event | {Aggregated: to("_on_merged"), Trained: to("_on_trained")}
    _on_message = PeerNode._on_message | {GossipModel: to("_on_model")}
    _on_timeout = PeerNode._on_timeout | {"send": to("_on_period")}

    def __init__(
        self, parameters: GossipParameters, initial_model: Model, durable: Durable | None = None, **world: Any
    ) -> None:
        """`world` is for `PeerNode`."""
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        super().__init__(parameters=parameters, counter=durable.counter, **world)
        self._parameters = parameters
        self.age = min(durable.round, MAX_AGE)
        self.model = durable.model
        self._merging = self._training = False
        self._waiting: GossipModel | None = None

    def on_start(self) -> None:
        self._merging = self._training = False
        self._waiting = None
        # Its own moment in the period: nodes that came together must not send together for ever.
        self.set_timer(SEND, self._parameters.period_s * self._rng.random())

    def _on_period(self, _: int) -> None:
        self.set_timer(SEND, self._parameters.period_s)
        self.find_peers(1, self.age)

    def on_peers(self, k: int, peers: tuple[NodeId, ...]) -> None:
        self.send(peers, GossipModel(self.age, self.membership.view.snapshot(), self.model))

    def _on_model(self, src: NodeId, body: GossipModel) -> None:
        self.learn(src, body.view)
        if self._merging or (self._training and not self._parameters.overlapping):
            self._waiting = body
        else:
            self._merge(body)

    def _merge(self, other: GossipModel) -> None:
        self._merging, self._training = True, False
        # Two models that nobody has trained are the same one; weights of 0 and 0 would say nothing.
        weights = (self.age, other.age) if self.age or other.age else (1, 1)
        self.age = min(max(self.age, other.age), MAX_AGE - 1)
        self.outbox.append(Merge(self.age, (self.model, other.model), weights))

    def _on_merged(self, event: Aggregated) -> None:
        if self._merging:
            self._merging, self._training = False, True
            self.model = event.model
            if self._parameters.judge_merged:
                self.report(ModelUpdated(self.age, self.model, merged=2))
            self.outbox.append(Train(self.age + 1, self.model))

    def _on_trained(self, event: Trained) -> None:
        if not self._training:
            return
        self._training = False
        self.age, self.model = event.round, event.model
        self.save()
        self.report(ModelUpdated(self.age, self.model, merged=2))
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._merge(waiting)

    def save(self) -> None:
        self.keep(self.age, self.model)
