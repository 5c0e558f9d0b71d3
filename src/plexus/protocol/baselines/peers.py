"""Knowing others without anybody who knows all: the peer sampling of gossip protocols.

A node that comes or goes tells others as in Plexus (see `membership`), and views ride on the models
that nodes send each other anyway. To find somebody, a node pings random ones of those that its own
view holds online, and takes the first that answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Annotated

from msgspec import Meta, Struct

from plexus.protocol.api import BandwidthMeasured, Durable, Expelled, Save, WentOffline, WentOnline
from plexus.protocol.machine import Machine, to
from plexus.protocol.membership import Membership
from plexus.protocol.messages import (
    NO_ADDRESS,
    Joined,
    Left,
    Model,
    NodeId,
    Ping,
    Pong,
    ViewReply,
    ViewRequest,
)
from plexus.protocol.parameters import require, require_duration
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import Sampler, SampleSearch, Search
from plexus.protocol.view import Snapshot, View

SPARE_CANDIDATES = 15
"""How many more than needed are asked, one after the other, before a search ends with fewer."""


class PeerParameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What protocols with peer sampling have in common."""

    ping_timeout_s: float = 2.0
    """How long a peer may take to answer a ping before another is asked, in seconds."""

    advertise_size: int = 130
    """How many nodes are told of a join or leave: as many as in Plexus with a sample size of 13."""

    readvertise_s: float = 600.0
    """A node that nobody contacted for this long after joining advertises itself again, in seconds."""

    def __post_init__(self) -> None:
        require_duration("ping_timeout_s", self.ping_timeout_s)
        require_duration("readvertise_s", self.readvertise_s)
        require(self.advertise_size >= 1, "advertise_size", self.advertise_size, "at least 1")

    @property
    def advertise_to(self) -> int:
        return self.advertise_size

    @property
    def readvertise_to(self) -> int:
        """A tenth, as in Plexus."""
        return -(-self.advertise_size // 10)


class TimedParameters(PeerParameters, frozen=True):
    """Of those in which rounds may have a fixed duration."""

    round_duration_s: float | None = None
    """How long a round lasts, in seconds. Default: without churn a round ends when the models are there;
    under churn the duration is tuned in a short simulation without churn, and reported."""

    transfers_complete: Annotated[float, Meta(gt=0, le=1)] = 0.99
    """The share of model transfers that a tuned round is long enough for. A few slow links would make
    rounds that wait for all disproportionately long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.round_duration_s is not None:
            require_duration("round_duration_s", self.round_duration_s)


class PeerNode(Machine, ABC):
    """A node that knows others by its own view. Protocols build on it; it starts with `WentOnline`."""

    _on_event = Machine._on_event | {
        WentOnline: to("_on_online"),
        WentOffline: to("_on_offline"),
        Expelled: to("membership.on_expelled"),
        BandwidthMeasured: to("_on_bandwidth_measured"),
    }
    _on_message = Machine._on_message | {
        Ping: to("_on_ping"),
        Pong: to("_on_pong"),
        Joined: to("membership.on_joined"),
        Left: to("membership.on_left"),
        ViewRequest: to("_on_view_request"),
        ViewReply: to("_on_view_reply"),
    }
    _on_timeout = Machine._on_timeout | {
        "ping": to("sampler.on_timeout"),
        "readvertise": to("membership.on_readvertise"),
    }

    def __init__(
        self,
        me: NodeId,
        parameters: PeerParameters,
        view: View,
        bandwidth_bytes_per_s: int,
        rng: Random,
        counter: int,
        address: bytes = NO_ADDRESS,
        roster: Roster | None = None,
    ) -> None:
        super().__init__(me)
        self._rng = rng
        self.membership = Membership(
            self, parameters, view, bandwidth_bytes_per_s, rng, self.save, counter, address, roster
        )
        self.sampler = Sampler(self, parameters.ping_timeout_s, found=self.on_found, gone=self.on_gone)

    on_gone: Callable[[NodeId], None] | None = None
    """What to do about a node that stays silent when it is looked for."""

    heeds = None
    """It does nothing about who comes and goes, and notes it (see `Member`)."""

    # What a protocol adds

    @abstractmethod
    def on_start(self) -> None:
        """The node is online and has said so."""

    def on_found(self, search: Search) -> None:
        self.on_peers(search.round, search.sample.found)

    def on_peers(self, k: int, peers: tuple[NodeId, ...]) -> None:
        """The search for random peers in round k ended: these answered."""

    @abstractmethod
    def save(self) -> None:
        """Keep the node's counter and whatever else must survive a crash."""

    # What it is given

    def find_peers(self, count: int, k: int) -> None:
        """Look for `count` random nodes that are online; a search under way is given up."""
        others = self._draw(count + SPARE_CANDIDATES)
        self.sampler.begin(Search("peers", k, SampleSearch(self.me, others, count), announced=k))

    def _draw(self, size: int) -> list[NodeId]:
        """About `size` random others that are believed online."""
        online = self.membership.view.actives()
        if len(online) > 4 * size:  # few are drawn twice, and it is several times faster
            drawn = dict.fromkeys(self._rng.choices(online, k=size))
        else:
            drawn = dict.fromkeys(self._rng.sample(online, min(size + 1, len(online))))
        drawn.pop(self.me, None)
        return list(drawn)

    def keep(self, k: int, model: Model) -> None:
        """Save this model of round k, and what the node knows of itself and others."""
        view = self.membership.view.snapshot()
        self.outbox.append(Save(Durable(self.membership.counter, k, model, view, k)))

    def learn(self, src: NodeId, view: Snapshot) -> None:
        """A model arrived, and with it its sender's view."""
        self.membership.contacted = True
        self.membership.merge(src, view)

    # What happens to it

    def _on_online(self, _: WentOnline) -> None:
        self.sampler.reset()
        self.membership.join()
        self.on_start()

    def _on_offline(self, _: WentOffline) -> None:
        self.membership.leave()

    def _on_view_request(self, src: NodeId, _: ViewRequest) -> None:
        self.send((src,), ViewReply(self.membership.view.snapshot()))

    def _on_view_reply(self, src: NodeId, reply: ViewReply) -> None:
        self.membership.merge(src, reply.view)

    def _on_bandwidth_measured(self, measured: BandwidthMeasured) -> None:
        self.membership.bandwidth_bytes_per_s = measured.bandwidth_bytes_per_s
        self.membership.join()

    def _on_ping(self, src: NodeId, ping: Ping) -> None:
        self.membership.contacted = True
        self.send((src,), Pong(ping.exchange, ping.round, 0, self.membership.view.event_of(src)))

    def _on_pong(self, src: NodeId, pong: Pong) -> None:
        self.membership.on_event_known(src, pong.event)
        self.sampler.on_answer(src, pong.exchange)
