"""Epidemic Learning: each round every node trains and sends its model to s random others, then averages
its own with what arrived (de Vos et al., 2023).

Without churn rounds are synchronous: the others are drawn by a rule that everybody can repeat, so a
node knows from whom to expect a model. Under churn rounds have a fixed duration (see `rounds`), and a
node draws among those that it believes online (see `peers`).
"""

from __future__ import annotations

from typing import Any

from plexus.protocol.api import Durable
from plexus.protocol.baselines.peers import PeerNode, TimedParameters
from plexus.protocol.baselines.rounds import ROUND_EVENTS, ROUND_TIMEOUTS, Rounds
from plexus.protocol.baselines.topology import Topology
from plexus.protocol.machine import to
from plexus.protocol.messages import EpidemicModel, Model, NodeId
from plexus.protocol.parameters import require


class EpidemicParameters(TimedParameters, frozen=True):
    """Epidemic Learning: in every round each node trains, sends its model to a few random others, and
    averages its own with those it was sent."""

    fanout: int = 10
    """s: to how many others a node sends its model in a round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fanout >= 1, "fanout", self.fanout, "at least 1")


class EpidemicNode(PeerNode):
    _on_event = PeerNode._on_event | ROUND_EVENTS
    _on_message = PeerNode._on_message | {EpidemicModel: to("_on_model")}
    _on_timeout = PeerNode._on_timeout | ROUND_TIMEOUTS

    def __init__(
        self,
        parameters: EpidemicParameters,
        draws: Topology,
        initial_model: Model,
        round_duration_s: float | None = None,
        durable: Durable | None = None,
        **world: Any,
    ) -> None:
        """`draws` says who sends to whom while rounds are synchronous; `world` is for `PeerNode`."""
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        super().__init__(parameters=parameters, counter=durable.counter, **world)
        self._fanout = parameters.fanout
        self._draws = draws
        self.rounds = Rounds(
            self, durable, round_duration_s, expected=lambda k: draws.senders(self.me, k), share=self._share
        )

    def on_start(self) -> None:
        self.rounds.start()

    def _share(self, k: int, _: Model) -> None:
        if self.rounds.is_timed:
            self.find_peers(self._fanout, k)
        else:
            self.on_peers(k, self._draws.receivers(self.me, k))

    def on_peers(self, k: int, peers: tuple[NodeId, ...]) -> None:
        if k == self.rounds.k:  # else the round ended while the node was looking for peers
            view = self.membership.view.snapshot()
            self.send(peers, EpidemicModel(k, view, self.rounds.model))

    def _on_model(self, src: NodeId, body: EpidemicModel) -> None:
        self.learn(src, body.view)
        self.rounds.on_model(src, body.round, body.model)

    def save(self) -> None:
        self.keep(self.rounds.k - 1, self.rounds.model)
