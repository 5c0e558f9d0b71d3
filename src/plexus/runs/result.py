"""What a run amounts to. The same object is printed by `--json` and kept as `result.json`."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct


class Metric(Struct, frozen=True):
    """How good the model became on the test set. None: it was never evaluated.

    Where every node has a model of its own: the best that any was, and the mean over them at the end.
    """

    name: str
    best: float | None
    final: float | None
    higher_is_better: bool
    of_nodes: bool = False
    """Whether it is that: `best` the best node's, `final` the mean over nodes."""


class Traffic(Struct, frozen=True):
    """Messages of one type, as sent: partial transfers count with the bytes that left the sender."""

    count: int
    bytes: int


class Trainings(Struct, frozen=True):
    """Local trainings of nodes, and how many of them had to be computed to know the results."""

    asked: int
    computed: int
    wall_s: float = 0.0
    """What computing them took on this machine."""


class Used(Struct, frozen=True):
    """How much of what devices trained is behind the final model. None: no training was finished."""

    share: float | None
    """Of the trainings that were finished."""
    never_used_nodes: int
    """Nodes that finished trainings, of which none is behind the final model."""
    slowest_tenth_share: float | None
    """The same among the tenth of the devices on which a training takes longest."""
    fastest_half_share: float | None
    late: int = 0
    """Trainings that came too late for their round and are behind the final model by what they changed."""


class Lineage(Struct, frozen=True):
    """How the aggregated models of a session hang together."""

    trainings: int
    """Those behind the final model, the newest that was aggregated."""
    forks: int
    """How often others than those behind it went off on their own."""
    longest_fork_rounds: int
    duplicate_aggregators: int
    """Rounds that two or more nodes aggregated."""


class Cut(Struct, frozen=True):
    """Whose work survived a `partition`: aggregates completed while it lasted, and those of them that are
    behind the final model."""

    from_h: float
    to_h: float
    cut_nodes: int
    """How many nodes were cut off from the others."""
    cut_aggregates: int
    cut_survived: int
    others_aggregates: int
    others_survived: int


class Believed(Struct, frozen=True):
    """How many nodes those online hold to be online, and how many are: means over moments after the first
    hour, or over all of a session that has no more."""

    believed_online: float
    """Also a mean over the views of nodes online."""
    really_online: float
    ratio: float
    aggregators_ratio: float | None = None
    """The same of the views of aggregators alone, whenever one completed a round."""


class Evaluations(Struct, frozen=True):
    """Models measured on the test set."""

    count: int
    wall_s: float
    """What measuring them took on this machine."""


class Metrics(Struct, frozen=True):
    """What one evaluation found on the test set."""

    name: str
    value: float
    higher_is_better: bool
    loss: float
    others: dict[str, float] = {}

    @property
    def score(self) -> float:
        """The value, or what is larger the better it is."""
        return self.value if self.higher_is_better else -self.value

    @property
    def by_name(self) -> dict[str, float]:
        return {self.name: self.value, **self.others, "loss": self.loss}


@dataclass
class Costs:
    """What learning took so far. Times are of this machine, and in no result that must repeat."""

    asked: int = 0
    """Local trainings the protocol asked for."""
    computed: int = 0
    """Local trainings that something evaluated needed."""
    training_s: float = 0.0
    evaluation_s: float = 0.0
    workers_cpu_s: float = 0.0
    """Processor time of worker processes."""


class RoundTuning(Struct, frozen=True, kw_only=True):
    """How the duration of fixed rounds was found: from transfers in a short simulation without churn."""

    round_duration_s: float
    """By then the wanted share of transfers is complete, in seconds after the start of a round."""
    transfers: int
    """How many were measured."""
    complete: float
    """The wanted share."""
    slowest_s: float | None
    """When the last one was complete; null if it took longer than a day."""


class ChosenEngine(Struct, frozen=True):
    """What computed the trainings."""

    name: str
    device: str
    reason: str
    """Why this one."""


class Suspect(Struct, frozen=True):
    """What others refused from one node for one reason; of honest ones a little is refused too."""

    node: str
    reason: str
    times: int
    peers: int
    """How many refused it."""


MOST_SUSPECTS = 20


class Result(Struct, frozen=True, kw_only=True):
    """The outcome of one run."""

    digest: str
    """Of the event trace: equal for equal runs, whatever the machine. Of live peers: of their session."""
    weights_hash: str
    """Of the final model's weights; of the mean of the models that were evaluated last, if several were.
    Empty of live peers."""
    rounds: int
    """The highest round that was completed; for Gossip Learning, the greatest age of a model."""
    simulated_s: float
    """How far virtual time came, in seconds; of live peers, time on the clock."""
    cpu_s: float | None
    """Processor time of the simulation, in seconds; that of worker processes is in it. Nobody knows it of
    live peers."""
    wall_s: float
    """Time on the clock that it took, in seconds."""
    metric: Metric
    messages: dict[str, Traffic]
    """By type of message."""
    training_s: float
    """Time that devices spent training, all of them together, in simulated seconds."""
    trainings: Trainings
    evaluations: Evaluations = Evaluations(0, 0.0)
    used: Used | None = None
    """Nobody knows it of live peers, and where there is no global model there is nothing to know."""
    lineage: Lineage | None = None
    """Known where `used` is."""
    cuts: tuple[Cut, ...] = ()
    """One for each `partition` of the spec that began, where `lineage` is known."""
    membership: Believed | None = None
    """Of simulated runs whose nodes have views."""
    suspects: tuple[Suspect, ...] = ()
    """Where members may lie: what was refused most often."""
    tuning: RoundTuning | None = None
    """How the duration of rounds was found, if the protocol needs one and the spec does not give it."""
    sets: int | None = None
    """Different sets of examples, where several nodes have the same one (`task.reuse`)."""
    notes: tuple[str, ...] = ()
    """What to know before believing the rest."""
    interrupted: bool
    """Whether the run was stopped before its last simulated hour."""
    engine: ChosenEngine | None = None
    out: str
    """The run directory."""

    @property
    def sent_bytes(self) -> int:
        """What all nodes together put on the network."""
        return sum(traffic.bytes for traffic in self.messages.values())


class ProtocolBench(Struct, frozen=True, kw_only=True):
    """What simulating the protocol alone costs."""

    protocol: str = "plexus"
    nodes: int
    hours: float
    churn: bool
    cpu_s_per_simulated_hour: float
    """Processor seconds for each simulated hour, after set-up."""
    messages_per_s: float
    """Messages delivered or lost, for each processor second."""
    peak_mb: float
    """The most memory the process ever held, in megabytes of 10⁶ bytes."""
    setup_cpu_s: float
    """Processor seconds before virtual time began, not counted above."""
    rounds: int
    """The highest that was completed (for Gossip Learning, the greatest age of a model)."""
    events: int
    messages: dict[str, Traffic]
    """By type of message."""
    joins_and_leaves_per_hour: float
    """How much churn there was."""
    mean_online: float
    tuning: RoundTuning | None = None
    """How the duration of rounds was found, if it was."""
    used: Used | None = None
    lineage: Lineage | None = None
    """As in the result of a run."""
    digest: str
    """Of the event trace."""
