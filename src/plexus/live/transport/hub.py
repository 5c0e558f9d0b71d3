"""All links of a node: listening, dialling, one connection per pair, and dropping the dead.

Messages to a peer without a link wait for it to be dialled; if that fails they are lost, which the
protocol expects of any network.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakSet

from plexus.errors import PlexusError
from plexus.live.identity.admission import Admission, RefusedError
from plexus.live.models import LiveModel
from plexus.live.operator.log import Log
from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.live.transport.connection import Connection, RaceError
from plexus.live.transport.dialler import Dialler
from plexus.live.transport.frames import Hello, Kind, frame
from plexus.live.transport.limits import ByteCounts, Handshakes, Limits, LiveRoster
from plexus.live.transport.link import Inbox, PeerLink
from plexus.live.transport.relay import Relay
from plexus.protocol.messages import NO_ADDRESS, SINCE, WIRE_VERSION

UNREACHABLE = "it cannot be reached"
Encoded = bytes | Callable[[int], bytes]
"""A message, or what it is for somebody who speaks this version of the wire."""
NOT_UNDERSTOOD = "it speaks an older version"
BACKLOG = 256
SOME = 8
QUIET_S = 0.5
"""A relayed link is replaced by a direct one when nothing was said on it for so long."""


@dataclass(eq=False, repr=False)
class Hub:
    """The transport of one node."""

    admission: Admission
    limits: Limits
    roster: LiveRoster
    bandwidth: Callable[[bytes], int]
    """What is known of a link's slower end."""
    log: Log
    inbox: Inbox
    source: str | None = None
    """The local address to dial from."""
    dial_only: bool = False

    def __post_init__(self) -> None:
        self.links: dict[bytes, PeerLink] = {}
        self.advertised: bytes = NO_ADDRESS
        """Where this node wants to be dialled."""
        self._own_events = count(addresses.OWN_EVENT)
        self._seen_at: dict[bytes, str] = {}
        """By member, where it sees this node come from, if the operator has not said where that is."""
        self._incarnation = secrets.token_bytes(8)
        self._incarnations: dict[bytes, deque[bytes]] = {}
        """By peer: its newest ones."""
        self.clones = 0
        """How often a peer was met that was thought to be replaced by a newer process."""
        self._port = self.refused = 0
        self.handshakes = Handshakes(self.limits)
        self._server: asyncio.Server | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep_links())
        self._waiting: dict[bytes, deque[tuple[Encoded, Any, LiveModel | None]]] = {}
        """By peer, what is to be sent when its link is up."""
        self.dialler = Dialler(self)
        self.relay = Relay(self)
        self.traffic = ByteCounts()
        self.past_sent_bytes = self.past_received_bytes = 0
        """Of connections that have ended."""
        self.closing = False
        self.ending: WeakSet[asyncio.Transport] = WeakSet()
        """Of connections that were closed and may have words left to say."""

    async def listen(self, address: Address) -> Address:
        """Accept connections at `address`; returns it with the port that was chosen if it was 0."""
        loop, sock = asyncio.get_running_loop(), _listening_socket(address)
        self._server = await loop.create_server(lambda: Connection(self, False), sock=sock, backlog=BACKLOG)
        self._port = self._server.sockets[0].getsockname()[1]
        return address[0], self._port

    def advertise(self, address: Address) -> None:
        """Let others know that this node can be dialled there, if it can: not at 0.0.0.0 or ::."""
        packed = addresses.pack(address)
        if not self.dial_only and addresses.unpack(packed) is not None:
            self.advertised = packed
            self.roster.learn_address(0, next(self._own_events), packed)

    async def close(self, reason: str) -> None:
        """Stop listening and end all links."""
        self.closing = True
        self._keeper.cancel()
        if self._server is not None:
            self._server.close()
        await self.dialler.close()
        # Those by way of others first, while these still carry their last words.
        for link in sorted(self.links.values(), key=lambda link: link.connection.relay is None):
            link.connection.close(reason)
        self.log.settle(at_end=True)
        await asyncio.sleep(0)
        for transport in self.ending:
            transport.abort()  # who does not listen is not waited for
        await asyncio.sleep(0)

    async def flush(self, at_most_s: float) -> None:
        """Wait until everything that waits to be sent is handed to the network."""
        loop = asyncio.get_running_loop()
        until = loop.time() + at_most_s
        while loop.time() < until and (
            self.dialler.attempts or any(link.connection.has_unsent for link in self.links.values())
        ):
            await asyncio.sleep(0.02)

    def send(self, key: bytes, message: Encoded, tag: Any = None, model: LiveModel | None = None) -> None:
        """Send a message (as encoded by `protocol.wire`), or a model with its message (without head); `tag`
        comes back if the node cannot be reached or the model is known not to have arrived."""
        link = self.links.get(key)
        if link is not None:
            self._send(link, message, tag, model)
            return
        waiting = self._waiting.setdefault(key, deque(maxlen=self.limits.max_waiting_messages))
        waiting.append((message, tag, model))
        is_out = key in self.admission.list.revoked_nodes
        if is_out or not self.dialler.dial(key):
            self.forget(key)

    def _send(self, link: PeerLink, message: Encoded, tag: Any, model: LiveModel | None) -> None:
        """A peer of an older version is not sent what it does not know."""
        if SINCE.get(type(tag), 0) <= link.hello.wire:
            link.send(message if isinstance(message, bytes) else message(link.hello.wire), tag, model)
        else:
            self.inbox.outcome(link.key, tag, NOT_UNDERSTOOD)

    @property
    def links_wanted(self) -> int:
        """With so many that have an address there should be links, whether or not there is something to say:
        others reach a node that nobody can dial by way of these. Who has lost them all tries some."""
        if self.dial_only:
            return self.limits.max_links
        return 0 if self.dialler.has_relay else SOME

    def keep_linked(self, key: bytes) -> None:
        if self.roster.where(key) is not None and key not in self.links and key != self.admission.key:
            self.dialler.dial(key)

    def forget(self, key: bytes) -> None:
        """The node cannot be reached: what waited for it is lost."""
        for _, tag, _ in self._waiting.pop(key, ()):
            if tag is not None:
                self.inbox.outcome(key, tag, UNREACHABLE)

    def enforce_list(self) -> None:
        """A newer list is in force: pass it on, and end the links of those whom it names. They get it, too:
        on the authority's word they end, rather than go on by themselves."""
        newest = frame(Kind.LIST, self.admission.list.der)
        now = asyncio.get_running_loop().time()
        for link in list(self.links.values()):
            link.connection.send(newest)
            self.guarded("hub", self._keep, link, now)

    def hello(self, observed: Address) -> Hello:
        return Hello(
            digest=self.admission.session.digest,
            incarnation=self._incarnation,
            address=self.advertised,
            list_number=self.admission.list.number,
            observed=addresses.pack(observed),
            wire=WIRE_VERSION,
        )

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """Settle which of several connections with one peer is kept."""
        assert connection.peer is not None
        key = connection.peer.key
        mine_wins = self.admission.key < key
        link = self.links.get(key)
        if self.closing:
            raise RefusedError("this node is leaving")
        self._notice_clone(key, hello.incarnation)
        if link is None:
            both = key in self.dialler.attempts and not connection.dialled
            # One sort does not wait for the other: that attempt may come to nothing.
            if both and mine_wins and (key in self.dialler.by_relay) == (connection.relay is not None):
                raise RaceError("both dialled at once, and the other connection is kept")
            return
        old, same_way = link.connection, link.connection.dialled == connection.dialled
        kept_is_better = old.dialled == mine_wins
        if (old.relay is None) != (connection.relay is None):
            kept_is_better = old.relay is None
        if link.hello.incarnation == hello.incarnation and kept_is_better and not same_way:
            raise RaceError("there is a connection already")
        old.close("replaced by a newer connection", is_race=True)

    def _notice_clone(self, key: bytes, incarnation: bytes) -> None:
        """A process that was restarted never comes back as it was; two that share a key take turns."""
        seen = self._incarnations.setdefault(key, deque(maxlen=4))
        if incarnation in seen and incarnation != seen[-1]:
            self.clones += 1
            self.log.warning("cloned_identity", peer=key, reason="two processes use the key of this node")
            seen.remove(incarnation)
        if incarnation not in seen:
            seen.append(incarnation)

    def up(self, connection: Connection, hello: Hello) -> PeerLink:
        assert connection.peer is not None
        key = connection.peer.key
        self.handshakes.end(connection)
        self.handshakes.admitted(addresses.origin(addresses.pack(connection.remote)))
        self._make_room()
        link = PeerLink(self, connection, hello)
        self.links[key] = link
        if hello.list_number < self.admission.list.number:
            connection.send(frame(Kind.LIST, self.admission.list.der))  # before anything that rests on it
        self.log.debug("link_up", peer=key, remote=addresses.show(connection.remote), relay=connection.relay)
        # Once the connection is settled in its new state:
        asyncio.get_running_loop().call_soon(self._begin, link)
        return link

    def closed(self, connection: Connection, reason: str) -> None:
        self.handshakes.end(connection)
        self.past_sent_bytes += connection.sent_bytes
        self.past_received_bytes += connection.received_bytes
        key = connection.peer.key if connection.peer is not None else None
        link = self.links.get(key) if key is not None else None
        if key is not None and link is not None and link.connection is connection:
            del self.links[key]
            self.log.debug("link_down", peer=key, reason=reason, relay=connection.relay)
            if connection.relay is not None and not connection.was_race:
                self.dialler.blame(connection.relay, key)
            self.guarded("hub", self.inbox.link_down, key, reason)
        elif link is None and not connection.was_race:
            say = self.log.info if connection.dialled else self.log.warning
            if connection.dialled and connection.relay is not None:
                say = self.log.debug  # of whom nobody reaches, relays only say so once more
            else:
                self.refused += 1
            who = {"remote": addresses.show(connection.remote), "dialled": connection.dialled}
            say("no_link", **who, peer=key, reason=reason, relay=connection.relay)

    def failed(self, where: str) -> None:
        self.log.exception("failure", where=where)

    def begin_handshake(self, connection: Connection) -> bool:
        """Whether it may try to be admitted."""
        origin, now = addresses.origin(addresses.pack(connection.remote)), asyncio.get_running_loop().time()
        return not self.closing and self.handshakes.begin(connection, origin, self.roster.is_at(origin), now)

    def _begin(self, link: PeerLink) -> None:
        if not link.connection.is_up:
            return
        self.guarded("hub", self._note_addresses, link)
        for waiting in self._waiting.pop(link.key, ()):
            self.guarded("hub", self._send, link, *waiting)

    def _note_addresses(self, link: PeerLink) -> None:
        """Where the other one wants to be dialled, and where it sees this node come from."""
        self.roster.learn_address(self.roster.number(link.key), 1, link.hello.address)
        seen = addresses.unpack(link.hello.observed)
        if seen is None or (self.advertised != NO_ADDRESS and not self._seen_at):
            return
        self._seen_at[link.key] = seen[0]
        times, told = Counter(self._seen_at.values()), addresses.unpack(self.advertised)
        [(host, most)] = times.most_common(1)
        if told is None or most > times[told[0]]:  # the first may be wrong, or the address another now
            self.advertise((host, self._port))

    def guarded(self, where: str, action: Callable[..., None], *arguments: Any) -> None:
        """Whatever goes wrong there, others go on."""
        try:
            action(*arguments)
        except Exception:
            self.failed(where)

    def _make_room(self) -> None:
        if len(self.links) >= self.limits.max_links:
            idle = [link for link in self.links.values() if link.is_idle]
            oldest = min(idle or self.links.values(), key=lambda link: link.connection.used_at)
            oldest.connection.close("making room for another link", is_race=True)

    async def _keep_links(self) -> None:
        """Heartbeats; and the end of links that are silent or whose certificate is no longer good."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.limits.heartbeat_s / 2)
            self.log.settle()
            for link in list(self.links.values()):
                self.guarded("hub", self._keep, link, loop.time())

    def _keep(self, link: PeerLink, now: float) -> None:
        connection = link.connection
        assert connection.peer is not None
        if now - connection.heard_at > self.limits.silent_after_s:
            connection.close(f"silent for {now - connection.heard_at:.0f} s", tell=False)
            return
        if connection.relay is not None and link.is_idle and now - connection.used_at > QUIET_S:
            self.dialler.look_for_direct(link.key)
        try:
            self.admission.check_still(connection.peer)
        except RefusedError as error:
            connection.close(str(error))
            return
        # At every second look.
        if now - connection.spoke_at >= 0.75 * self.limits.heartbeat_s:
            connection.send(frame(Kind.HEARTBEAT))


def _listening_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    both = address[0] == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        shown = addresses.show(address)
        raise PlexusError(f"cannot listen at {shown}: {error.strerror or error}") from None
