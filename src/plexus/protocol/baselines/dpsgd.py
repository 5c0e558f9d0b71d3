"""Decentralised parallel SGD: train, exchange models with the neighbours, average (Lian et al., 2017).

Rounds are synchronous without churn and of a fixed duration with it (see `rounds`). Topology and, if
there is one, the duration are agreed on before training starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from plexus.protocol.api import Durable, Save, WentOffline, WentOnline
from plexus.protocol.baselines.rounds import ROUND_EVENTS, ROUND_TIMEOUTS, Rounds
from plexus.protocol.baselines.topology import Topology
from plexus.protocol.machine import Machine, to
from plexus.protocol.messages import Model, NeighbourModel, NodeId
from plexus.protocol.parameters import require, require_duration


class DpsgdParameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """D-PSGD: in every round each node trains, sends its model to its neighbours, and averages its own
    with theirs."""

    topology: Literal["one-peer-exponential", "regular", "ring", "full", "file"] = "one-peer-exponential"
    """Who sends to whom. `one-peer-exponential`: one node each round, 1, 2, 4, … places further.
    `regular`: a random graph with `degree` neighbours each. `ring`: the two next to it. `full`: everybody.
    `file`: the graph in `topology_file`."""

    degree: Annotated[int, Meta(ge=1)] = 10
    """How many neighbours a node of a `regular` topology has."""

    topology_file: str | None = None
    """A text file with the edges of the topology `file`, as networkx writes it."""

    topology_format: Literal["edgelist", "adjlist"] = "edgelist"
    """How `topology_file` is written. `edgelist`: an edge on each line. `adjlist`: a node and its
    neighbours on each line."""

    mixing: Literal["uniform", "metropolis"] = "uniform"
    """How much models count. `uniform`: all that are there, the same. `metropolis`: by the degrees of both
    ends, and what is missing counts for the node's own model; the mean over all nodes is then kept in
    graphs that are not regular, too."""

    round_duration_s: float | None = None
    """How long a round lasts, in seconds. Default: without churn a round ends when the models are there;
    under churn the duration is tuned in a short simulation without churn, and reported."""

    transfers_complete: Annotated[float, Meta(gt=0, le=1)] = 0.99
    """The share of model transfers that a tuned round is long enough for. A few slow links would make
    rounds that wait for all disproportionately long."""

    def __post_init__(self) -> None:
        if self.round_duration_s is not None:
            require_duration("round_duration_s", self.round_duration_s)
        of_file = self.topology == "file"
        require(
            of_file == (self.topology_file is not None),
            "topology_file",
            self.topology_file,
            "the name of a file" if of_file else 'left out, or topology set to "file"',
        )


class DpsgdNode(Machine):
    """One node. Give it its world at construction; it starts with `WentOnline`."""

    _on_event = (
        Machine._on_event | ROUND_EVENTS | {WentOnline: to("_on_online"), WentOffline: to("_on_offline")}
    )
    _on_message = Machine._on_message | {NeighbourModel: to("_on_model")}
    _on_timeout = Machine._on_timeout | ROUND_TIMEOUTS

    def __init__(
        self,
        me: NodeId,
        topology: Topology,
        initial_model: Model,
        round_duration_s: float | None = None,
        mixing: str = "uniform",
        durable: Durable | None = None,
    ) -> None:
        super().__init__(me)
        self._topology = topology
        self.rounds = Rounds(
            self,
            durable or Durable(counter=0, round=0, model=initial_model),
            round_duration_s,
            expected=lambda k: topology.senders(me, k),
            share=self._share,
            weights=self._metropolis if mixing == "metropolis" else None,
        )

    def _on_online(self, _: WentOnline) -> None:
        self.rounds.start()

    def _on_model(self, src: NodeId, body: NeighbourModel) -> None:
        self.rounds.on_model(src, body.round, body.model)

    def _on_offline(self, _: WentOffline) -> None:
        self.outbox.append(Save(Durable(0, self.rounds.k - 1, self.rounds.model)))

    def _share(self, k: int, model: Model) -> None:
        self.send(self._topology.receivers(self.me, k), NeighbourModel(k, model))

    def _metropolis(self, k: int, senders: Collection[NodeId]) -> Mapping[NodeId, float]:
        """1 / (1 + the greater degree) for each model; the rest of 1 for the node's own."""
        degrees = {n: len(self._topology.senders(n, k)) for n in (self.me, *senders)}
        weights = {n: 1 / (1 + max(degrees[n], degrees[self.me])) for n in senders}
        return weights | {self.me: 1 - sum(weights.values())}
