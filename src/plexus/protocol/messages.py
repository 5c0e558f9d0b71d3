"""What nodes say to each other. The declarations here are also the wire format (see `wire`)."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from plexus.protocol.view import Snapshot

NodeId: TypeAlias = int
"""A node's number in the local roster; on the wire it is the node's key (see `roster`)."""

Model: TypeAlias = Any
"""Opaque to every protocol: tensors when live, an expression or a label in the simulator."""

ADDRESS_BYTES = 18
"""Where a node can be reached: an IPv6 (or mapped IPv4) address and a port, in network order."""
NO_ADDRESS = bytes(ADDRESS_BYTES)
"""Of a node that cannot be reached, or need not be (in the simulator)."""
PROOF_BYTES = 64
"""What shows that an event is its node's own: a signature, where events are signed (see `roster`)."""


NAME_BYTES = 16
MOST_NAMES = 6
"""That somebody says who asks for a view."""


class Message(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Base of all messages."""


class Ping(Message, frozen=True, tag=1):
    """Are you there? `round` is the newest round the asking node works on."""

    exchange: int
    round: int


class Pong(Message, frozen=True, tag=2):
    """Yes. `round` is the newest round the answering node knew of before the ping, `held` the round of
    the newest aggregated model it holds, `event` the newest event it knows of the asking node: so a node
    learns whether its last joined was heard, what it was called before it forgot, and that it is suspected
    to be gone. Also sent unasked, to tell a node just that."""

    exchange: int
    round: int
    held: int
    event: int
    busy: int = 0
    """The sum of `BUSY`, `FRESH` and `YOURS`, as far as they apply."""


BUSY, FRESH, YOURS = 1, 2, 4
"""In a pong: the node trains, and will finish that before it begins anything else; it has come back just now
and had no work since; all have just come back, and the asked node's model is the newer one to go on with."""


class Joined(Message, frozen=True, tag=3):
    """The sender is online since its event number `counter`."""

    counter: int
    bandwidth_bytes_per_s: int
    address: bytes = NO_ADDRESS
    proof: bytes = b""


class Left(Message, frozen=True, tag=4):
    """The sender goes offline: its event number `counter`."""

    counter: int
    proof: bytes = b""
    address: bytes = NO_ADDRESS
    """Where it was: what it has signed must be known to whoever passes it on."""


class Ack(Message, frozen=True, tag=5):
    """Round `round` has been aggregated: no need to look for another aggregator."""

    round: int
    used: int = 1
    """1: the model is or will be in the aggregate; 0: it is not."""
    late: int = 0
    """If about a late model, the round for which that was meant; `round` is the one it was trained in."""


class TrainRequest(Message, frozen=True, tag=6):
    """From the aggregator of `round` to each participant: train this model."""

    round: int
    step: int
    """The next round is `round + step`: the more nodes stand behind a round, the further (see `quorum`)."""
    ordinal: int
    """How many rounds led here: what people count."""
    participants: int
    """How many nodes were asked to train in this round: the aggregator's success fraction is of these."""
    view: Snapshot
    model: Model


class AggregateRequest(Message, frozen=True, tag=7):
    """From a participant of the round before to the aggregator of `round`: here is my trained model."""

    round: int
    trained_in: int
    """The round before, of which the sender is a participant."""
    ordinal: int
    participants: int
    samples: int
    """Training examples behind this model, for sample-weighted means."""
    view: Snapshot
    model: Model


class GossipModel(Message, frozen=True, tag=8):
    """Gossip Learning: the sender's model, to be merged with the receiver's own."""

    age: int
    """How many trainings are behind this model, one after the other."""
    view: Snapshot
    model: Model


class NeighbourModel(Message, frozen=True, tag=9):
    """D-PSGD: what the sender trained in `round`, to a neighbour in the topology."""

    round: int
    model: Model


class EpidemicModel(Message, frozen=True, tag=10):
    """Epidemic Learning: what the sender trained in `round`, to a node it drew."""

    round: int
    view: Snapshot
    model: Model


class GlobalModel(Message, frozen=True, tag=11):
    """Federated averaging, from the server to a client of `round`: train this model."""

    round: int
    model: Model


class ClientModel(Message, frozen=True, tag=12):
    """Federated averaging, from a client of `round` to the server: here is my trained model."""

    round: int
    samples: int
    model: Model


class ViewRequest(Message, frozen=True, tag=13):
    """From a node that is joining, or was told of a view that it does not have: whom do you know?"""

    asks: bytes = b""
    """Names, where views are told as what others lack: of the list of nodes that the sender goes by, of the
    view that it asks for, and of those it has (see `lacking`)."""


class ViewReply(Message, frozen=True, tag=14):
    """These."""

    view: Snapshot


class LateModel(Message, frozen=True, tag=15):
    """To the aggregator of `round`, from a node whose model came too late for its own: what it changed."""

    round: int
    trained_in: int
    """The round it was trained in."""
    ordinal: int
    """Of that round: how old the change is."""
    samples: int
    model: Model
    """A change (see `api.Change`)."""


class Ended(Message, frozen=True, tag=16):
    """The session has ended with the model of `round`."""

    round: int
    ordinal: int
    held: int
    """1: the sender has that model."""


class FinalRequest(Message, frozen=True, tag=17):
    """Please send me the model that the session has ended with."""

    round: int


class FinalModel(Message, frozen=True, tag=18):
    """This."""

    round: int
    ordinal: int
    model: Model


class Score(Message, frozen=True, tag=19):
    """A model was measured and is the best that the sender knows of."""

    ordinal: int
    score: int
    """The larger the better: a floating-point number's 32 bits."""


class TokenModel(Message, frozen=True, tag=20):
    """Teleportation, to the holder of `token` in `round`: the model that it goes on with."""

    round: int
    token: int
    is_trained: int
    """1: a neighbour trained it in this round, and it is to be averaged with."""
    view: Snapshot
    model: Model


WIRE_VERSION, OLDEST_WIRE = 6, 4
"""What is spoken here, and the oldest that is understood."""
EXCERPTS_SINCE = 6
"""Who speaks an older version is sent whole views."""
SINCE: dict[type[Message], int] = dict.fromkeys((Ended, FinalRequest, FinalModel, Score), 5)
SINCE[TokenModel] = 6
"""The version of the wire that brought a kind of message: nobody who speaks an older one is sent it."""

KINDS: tuple[type[Message], ...] = tuple(Message.__subclasses__())
"""All of the above: what can be sent to another process. Messages of a user's own protocol come later."""
MODEL_KINDS = tuple(kind for kind in KINDS if "model" in kind.__struct_fields__)

NAMES: dict[type[Message], str] = {
    Ping: "ping",
    Pong: "pong",
    Joined: "membership",
    Left: "membership",
    Ack: "ack",
    ViewRequest: "membership",
    ViewReply: "membership",
    **dict.fromkeys((Ended, FinalRequest, Score), "membership"),
    **dict.fromkeys(MODEL_KINDS, "model"),
}
"""The paper's names of what is sent, by which bytes are accounted."""


def ordinal_of(body: Message) -> int:
    """How many rounds led to the one that a model message is about, as people count; 0 if it does not say,
    as one of a user's own protocol may not."""
    for field in ("ordinal", "round", "age"):
        if hasattr(body, field):
            return int(getattr(body, field))
    return 0


VIEW = "view"
"""What rides on a model message, and is accounted apart from the `model`."""
