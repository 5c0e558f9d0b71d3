"""What a node reports of itself, for whoever observes the run. Nothing here affects the protocol."""

from __future__ import annotations

from msgspec import Struct

from plexus.protocol.messages import Model, NodeId


class Fact(Struct, frozen=True, gc=False):
    """Base of all facts. Of a round there is the number by which rounds are compared, `round`, and its
    `ordinal`, by which people count them."""


class SampleDerived(Fact, frozen=True):
    """The node derived the sample of `round`; `silent` candidates before it did not answer."""

    round: int
    ordinal: int
    purpose: str
    sample: tuple[NodeId, ...]
    silent: int


class AnsweredLate(Fact, frozen=True):
    """`node` answered a ping `after_s`, when it had been taken as offline already: the ping timeout is
    shorter than the way there and back, or the node was busy."""

    node: NodeId
    after_s: float


class TrainingStarted(Fact, frozen=True):
    """The node is a participant of `round`."""

    round: int
    ordinal: int


class TrainingInterrupted(Fact, frozen=True):
    """A newer round arrived while the node still worked for `round`."""

    round: int
    ordinal: int


class AggregatorChosen(Fact, frozen=True):
    """The node sends its model for `round` to `aggregator`, at the `attempt`-th try."""

    round: int
    ordinal: int
    aggregator: NodeId
    attempt: int


class AggregationCompleted(Fact, frozen=True):
    """The node, aggregator of `round`, made `model` of `models` models after `waited_s`."""

    round: int
    ordinal: int
    model: Model
    models: int
    participants: int
    timed_out: bool
    waited_s: float
    late: int = 0
    """Changes of late models that were added."""


class ModelUpdated(Fact, frozen=True):
    """The node's own model is now `model`: that of its `round` (for Gossip Learning, its age), made of
    `merged` models. Protocols without a global model are judged by these."""

    round: int
    model: Model
    merged: int


class ServerLost(Fact, frozen=True):
    """The connection with the server of federated averaging broke."""

    reason: str


class RoundRestarted(Fact, frozen=True):
    """Nobody answered knows of progress: the node starts `round` from the model of round `held`."""

    round: int
    ordinal: int
    held: int


class Readvertised(Fact, frozen=True):
    """Nobody contacted the node since it joined; it advertised itself again."""

    attempt: int


class QuorumMissing(Fact, frozen=True):
    """The node could go on with `round`, but only `found` of the `needed` nodes answered: it waits for the
    others, because it may be the one that is cut off."""

    round: int
    ordinal: int
    found: int
    needed: int


class Suspected(Fact, frozen=True):
    """`node` did not answer: it is taken as gone until it shows that it is not."""

    node: NodeId


class Refused(Fact, frozen=True):
    """`src` said or asked something that no honest member does: `what`, and `why` it is not believed."""

    src: NodeId
    what: str
    why: str


class LateModelSent(Fact, frozen=True):
    """The node came too late with its training of `round`, and sends `aggregator` what it changed."""

    round: int
    ordinal: int
    aggregator: NodeId


class SessionEnded(Fact, frozen=True):
    """The node knows that the session has ended with the model of `round`."""

    round: int
    ordinal: int


class EndClaimed(Fact, frozen=True):
    """Somebody says that the session ends with this model. Whether it is good enough is to be measured."""

    round: int
    ordinal: int
    model: Model


class EndRevoked(Fact, frozen=True):
    """Nobody has the model that the session was to end with, or believes in it: it goes on."""

    round: int
    ordinal: int


class FinalHeld(Fact, frozen=True):
    """The node has the model that the session has ended with."""

    round: int
    ordinal: int
    model: Model
