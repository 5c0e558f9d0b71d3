"""Bounds on everything that a peer, or somebody who wants to be one, can make this node spend; and what
its connection really carries, and how fast."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from plexus.live.transport.addresses import Address, origin, unpack
from plexus.protocol import wire
from plexus.protocol.messages import NAMES, VIEW, NodeId
from plexus.protocol.roster import Roster
from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S
from plexus.protocol.wire import WireError

if TYPE_CHECKING:
    from plexus.live.transport.connection import Connection


class Limits(Struct, frozen=True, kw_only=True):
    """The defaults suit models of up to some hundred megabytes and sessions of some thousand nodes."""

    max_frame_bytes: int = 4 * 2**20
    """The largest frame accepted from an admitted peer. The largest there is carries a view: 106 bytes a
    node, so `max_nodes` fit."""

    max_greeting_bytes: int = 1024
    """The largest frame accepted before a link is up."""

    max_links: int = 256
    """Links kept at a time. The one idle for longest makes room for a new one."""

    max_handshakes: int = 128
    """Connections that have not yet been admitted, at a time; for further ones, others make way."""

    max_handshakes_per_host: int = 32
    """The same, from one address."""

    handshake_grace_s: float = 2.0
    """For so long nobody has to make way who has not more connections than others."""

    handshake_timeout_s: float = 10.0
    """From accepting or dialling until the link is up."""

    heartbeat_s: float = 4.5
    """Something is sent on every link about this often. Of many links, this is most of what an idle peer
    does."""

    silent_after_s: float = 10.0
    """A link on which nothing arrived for this long is dead."""

    max_unsent_bytes: int = 16 * 2**20
    """Messages waiting for a link that does not take them; more, and the link is given up."""

    max_waiting_messages: int = 64
    """Messages waiting for one peer to be dialled; the oldest are dropped."""

    max_transfers: int = 4
    """Models on the way at a time on one link, in each direction."""

    transfer_grace_s: float = 30.0
    """A granted model of which nothing comes for so long is given up (and in `receiving`, slow ones)."""

    memory_bytes: int = 256 * 2**20
    """What models may take: further ones lie in files in the node's home. As many of them may be arriving
    at a time, at least two; further senders wait their turn."""

    redial_s: float = 0.5
    """Shortest time between two attempts to reach a peer; doubles up to the longest."""

    max_redial_s: float = 2.0
    """Longest time between two attempts to reach a peer. Short, because nobody dials without having
    something to say, and a partition that has healed should be noticed."""

    connect_timeout_s: float = 3.0
    """For the TCP connection alone; for all of a link by way of another member."""

    max_relayed: int = 1024
    """Links of others that this node carries at a time."""

    max_relayed_per_link: int = 256
    """The same, of one member; and links by way of it that this node has."""

    relay_memory_bytes: int = 64 * 2**20
    """What waits to be carried on, of all of them. The one of which most waits is ended."""

    relay_bytes_per_s: int | None = None
    """What this node carries for others, at most; 0 for nothing."""

    max_nodes: int = 39_000
    """Nodes that this node remembers."""


MAX_FAMILIAR = 1024
"""Hosts remembered that admitted peers came from."""


class Handshake(NamedTuple):
    origin: bytes
    is_known: bool
    """From a host that a member is at, or was."""
    since_s: float


class Handshakes:
    """Connections from others that have not been admitted yet, the oldest first.

    Anybody can open them and each takes memory, so there is a limit, and whoever fills it up must not keep
    others out. So one makes way: an outsider's for that of a host which members are at, and among equals the
    oldest one of the host that has most.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.under_way: dict[Connection, Handshake] = {}
        self._familiar: dict[bytes, None] = {}
        """Where admitted peers came from, the latest last."""

    def begin(self, connection: Connection, origin: bytes, is_known: bool, now: float) -> bool:
        """Whether it may begin; another one may have to make way for it."""
        fresh = Handshake(origin, is_known or origin in self._familiar, now)
        counts = Counter(each.origin for each in self.under_way.values())
        is_host_full = counts[origin] >= self._limits.max_handshakes_per_host
        if is_host_full or len(self.under_way) >= self._limits.max_handshakes:
            rivals = (each for each in self.under_way.items() if not is_host_full or each[1].origin == origin)
            # The first of those that are equal, which is the oldest.
            other, its = min(rivals, key=lambda each: (each[1].is_known, -counts[each[1].origin]))
            if not self._makes_way(its, fresh, counts):
                return False
            other.close("made way for another connection", tell=False)
        self.under_way[connection] = fresh
        return True

    def _makes_way(self, its: Handshake, fresh: Handshake, counts: Counter[bytes]) -> bool:
        if its.is_known != fresh.is_known:
            return fresh.is_known
        # Where everybody has as many, as when all peers of a large session arrive at once, all must get time
        # enough, or nobody would ever finish.
        has_more = counts[its.origin] > counts[fresh.origin] + 1
        return has_more or fresh.since_s - its.since_s >= self._limits.handshake_grace_s

    def end(self, connection: Connection) -> None:
        self.under_way.pop(connection, None)

    def admitted(self, origin: bytes) -> None:
        """Somebody from there has shown a good certificate."""
        self._familiar.pop(origin, None)
        self._familiar[origin] = None
        if len(self._familiar) > MAX_FAMILIAR:
            del self._familiar[next(iter(self._familiar))]


MESSAGE, MODEL, PROBE, OTHER = "message", "model", "probe", "other"
PROBES_BYTES = (64 * 1024, 512 * 1024, 4 * 2**20)
"""Sizes of probes, which measure bandwidth: the next larger one is sent if the one before took next to no
time and a model is as large. The smallest one says something about bandwidth, not just about latency."""
MOST_TRANSFERS = 10_000
"""Remembered of those that ended."""
KEPT = 16
MIN_BYTES = 24 * 1024
"""Less says more about latency than about bandwidth."""


class Meter:
    """The best of the last transfers each way: a slow one may be the other side's fault."""

    def __init__(self, known_bytes_per_s: int = 0) -> None:
        self._known = known_bytes_per_s
        self._up: deque[float] = deque(maxlen=KEPT)
        self._down: deque[float] = deque(maxlen=KEPT)

    def note(self, size_bytes: int, seconds: float, sent: bool) -> None:
        if size_bytes >= MIN_BYTES and seconds > 0:
            (self._up if sent else self._down).append(size_bytes / seconds)

    @property
    def is_measured(self) -> bool:
        return bool(self._up and self._down)

    @property
    def bytes_per_s(self) -> int:
        """An aggregator receives and sends, so the lesser of the two; of what is known."""
        if not self.is_measured:
            return self._known
        slower = min(max(self._up), max(self._down))
        return min(round(slower), MAX_BANDWIDTH_BYTES_PER_S)


class Transfer(NamedTuple):
    """A model that was sent, or part of it."""

    to: bytes
    message: type
    round: int
    began_at: float
    ended_at: float
    cut: bool


class ByteCounts:
    """Bytes by what they are: messages, models with theirs, probes. What links carry beyond that is TLS,
    acknowledgements and heartbeats."""

    def __init__(self) -> None:
        self.counts = {
            f"{what}_{way}_bytes": 0 for what in (MESSAGE, MODEL, PROBE) for way in ("sent", "received")
        }
        self.sent = {name: [0, 0] for name in (*dict.fromkeys(NAMES.values()), VIEW, OTHER, PROBE)}
        """By type of message, as the simulator accounts them: [count, bytes]."""
        self.transfers: deque[Transfer] = deque(maxlen=MOST_TRANSFERS)
        """Those that ended, for whoever keeps records."""

    def note(self, what: str, size_bytes: int, sent: bool) -> None:
        self.counts[f"{what}_{'sent' if sent else 'received'}_bytes"] += size_bytes

    def message(self, message: bytes) -> None:
        """One that is sent, as `protocol.wire` encodes it: a length, the array's head, the tag, and so on."""
        self.note(MESSAGE, len(message), sent=True)
        kind = wire.MESSAGE_TYPES.get(message[wire.LENGTH_BYTES + 1])
        # Another one is of a protocol of the user's own.
        self.add(OTHER if kind is None else NAMES.get(kind, OTHER), len(message))

    def ended(self, transfer: Transfer, message_bytes: int, model_bytes: int) -> None:
        """A model was sent, or part of it, behind its message."""
        self.add(VIEW, message_bytes)
        if model_bytes:
            self.add(MODEL, model_bytes)
            self.transfers.append(transfer)

    def add(self, name: str, size_bytes: int) -> None:
        self.sent[name][0] += 1
        self.sent[name][1] += size_bytes


class LiveRoster(Roster):
    """Numbers nodes as they are heard of; this node is number 0. Bounded: keys come from other peers."""

    strangers = 0
    """Of how many nodes it was told that are none of the session's."""

    def __init__(self, session: bytes, me: bytes, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        super().__init__(session, [me])

    def number(self, key: bytes) -> NodeId:
        if len(self.keys) >= self._max_nodes and key not in self._numbers:
            raise WireError(f"more than {self._max_nodes} nodes")
        return super().number(key)

    def where(self, key: bytes) -> Address | None:
        return unpack(self.address_of(self.number(key)))

    def is_at(self, host: bytes) -> bool:
        """Whether somebody can be dialled at this host (see `origin`)."""
        return any(origin(each) == host for _, each in self._addresses.values())
