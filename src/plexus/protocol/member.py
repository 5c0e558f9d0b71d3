"""A member of a session: whom it knows, who is gone, and that it is there itself (section III-E, and more).

Crashed nodes say no goodbye. Who is silent is suspected to be gone, and the suspicion spreads with the views;
whoever is there after all hears of it and refutes it by a new joined event. So nobody can be pushed out, and
nobody is believed online for ever.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from random import Random

from plexus.protocol.api import BandwidthMeasured, Expelled, Offered, WentOffline
from plexus.protocol.facts import Refused, Suspected
from plexus.protocol.joining import Joining
from plexus.protocol.lacking import Lacking
from plexus.protocol.machine import Machine, to
from plexus.protocol.membership import HEARD_ME, Membership, draw
from plexus.protocol.messages import Joined, Left, NodeId, Pong, ViewReply, ViewRequest
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.quorum import Quorum
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import Sampler, Search
from plexus.protocol.view import JOINED, SUSPECTED, Snapshot, View, event_number

PROBED = 1 / 100
"""A participant pings this share of those it believes online, chosen at random: samples are small, and in a
large session somebody who is gone would not be missed for long."""


class Member(Machine, ABC):
    """Knows others by its own view. The node of Plexus builds on it."""

    __slots__ = ("_rng", "joining", "membership", "quorum", "roster", "sampler", "view")

    _on_event = Machine._on_event | {
        BandwidthMeasured: to("_on_bandwidth_measured"),
        Offered: to("_on_offered"),
        Expelled: to("_on_expelled"),
        WentOffline: to("_on_offline"),
    }
    _on_message = Machine._on_message | {
        Joined: to("_on_joined"),
        Left: to("_on_left"),
        ViewRequest: to("_on_view_request"),
        ViewReply: to("_on_view_reply"),
    }
    _on_timeout = Machine._on_timeout | {
        "ping": to("sampler.on_timeout"),
        "quorum": to("quorum.on_timeout"),
        "readvertise": to("membership.on_readvertise"),
        "view": to("joining.on_timeout"),
    }

    def __init__(
        self,
        me: NodeId,
        parameters: PlexusParameters,
        roster: Roster,
        view: View,
        bandwidth_bytes_per_s: int,
        rng: Random,
        counter: int,
        address: bytes,
    ) -> None:
        super().__init__(me)
        self.roster = roster
        self.view = view
        self._rng = rng
        self.membership = Membership(
            self, parameters, view, bandwidth_bytes_per_s, rng, self.save, counter, address, roster
        )
        self.membership.is_wary = parameters.signed_views
        self.membership.lacking = Lacking(view.snapshot(), roster, parameters.views == "lacking")
        self.membership.suspicion_s = parameters.watchdog_s
        self.sampler = Sampler(self, parameters.ping_timeout_s, self.on_sample, self._on_gone)
        self.quorum = Quorum(self, parameters, self.membership, self.search_again)
        self.joining = Joining(
            self, self.membership, self.sampler, parameters.ping_timeout_s, self.on_advertised
        )

    @property
    def heeds(self) -> NodeId | None:
        """Whose coming and going changes what the node does; of others a runtime that has many nodes may
        tell it when something else happens to it. To send a message changes nothing of that."""
        return None

    # What the node adds

    @property
    @abstractmethod
    def newest_round(self) -> int:
        """That it knows of."""

    @abstractmethod
    def pong(self, exchange: int, to: NodeId) -> Pong:
        """An answer to `to`, which also tells it what is known of it."""

    @abstractmethod
    def on_sample(self, search: Search) -> None:
        """A search has come to its end."""

    @abstractmethod
    def search_again(self, search: Search) -> None:
        """Too few were found: look for the same sample once more, among those suspected to be gone too."""

    @abstractmethod
    def on_advertised(self) -> None:
        """The node is online and has told others."""

    @abstractmethod
    def on_news(self) -> None:
        """Somebody may be known to be gone by now."""

    @abstractmethod
    def save(self) -> None:
        """Keep the node's counter and whatever else must survive a crash."""

    # Whom it knows

    def _on_offline(self, _: WentOffline) -> None:
        self.membership.leave()
        self.forget_searches()  # for a long absence they are too much to keep

    def _on_joined(self, src: NodeId, joined: Joined) -> None:
        self.membership.on_joined(src, joined)
        self.roster.learn_address(src, event_number(joined.counter, JOINED), joined.address)

    def _on_left(self, src: NodeId, left: Left) -> None:
        self.membership.on_left(src, left)
        self.on_news()

    def _on_expelled(self, expelled: Expelled) -> None:
        self.membership.on_expelled(expelled)
        self.on_news()

    def _on_view_request(self, src: NodeId, request: ViewRequest) -> None:
        self.send((src,), ViewReply(self.membership.lacking.answer(request, self.view.snapshot())))

    def _on_view_reply(self, src: NodeId, reply: ViewReply) -> None:
        # It heard the question, which does not mean that it heard of the join.
        self._merge(src, reply.view, is_answer=True)
        if not self.membership.lacking.lacks(reply.view):
            self.joining.end()
        self.on_news()

    def _on_offered(self, offered: Offered) -> None:
        # What the sender knows is of use even if its model is not.
        if hasattr(offered.body, "view"):
            self._merge(offered.src, offered.body.view)
            self.on_news()

    def on_contact(self, src: NodeId, view: Snapshot) -> None:
        """A model came from `src`, and with it its view."""
        if src != self.me:
            self.membership.contacted = True
        self._merge(src, view)

    def _merge(self, src: NodeId, view: Snapshot, is_answer: bool = False) -> None:
        lacking = self.membership.lacking
        if lacking.lacks(view) and is_answer:
            if not lacking.has_said(view):
                self.report(Refused(src, "an answer", "it refers to a view that this node does not have"))
        elif lacking.lacks(view):
            self.send((src,), lacking.ask(view.base))  # type: ignore[attr-defined]
        elif is_answer:
            lacking.keep(view)
        view = lacking.whole(view)
        known = view.event_of(self.me)
        if known and src != self.me:
            self.membership.on_event_known(src, known)
        self.membership.merge(src, view)
        if self.view.doubted:
            self.view.trust(src)
            self.sampler.probe(self.membership.some_doubted(), self.newest_round)
        self.tell_if_suspected(src)

    def _on_bandwidth_measured(self, measured: BandwidthMeasured) -> None:
        # A bandwidth belongs to an event, so a new one needs a new event.
        self.membership.bandwidth_bytes_per_s = measured.bandwidth_bytes_per_s
        self.membership.join()

    # Whom it looks for

    def forget_searches(self) -> None:
        """They are gone with the node's last session."""
        self.sampler.reset()
        self.quorum.reset()

    def is_searching(self, purpose: str) -> bool:
        return self.sampler.is_searching(purpose) or self.quorum.is_waiting(purpose)

    def give_up(self, purpose: str) -> None:
        self.sampler.give_up(purpose)
        self.quorum.give_up(purpose)

    def present(self, sample: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        """Who answered and then said goodbye, while others were still pinged, would be waited for in vain."""
        event_of = self.view.event_of
        return tuple([node for node in sample if event_of(node) & 3 == JOINED])

    # Who is gone

    def _on_gone(self, node: NodeId) -> None:
        """`node` was pinged several times and stayed silent."""
        if self.membership.suspect(node):
            self.report(Suspected(node))
            self.tell_if_suspected(node)
            self.on_news()

    def tell_if_suspected(self, node: NodeId) -> None:
        """If it is there after all, it refutes that."""
        if self.view.event_of(node) & 3 == SUSPECTED:
            self.send((node,), self.pong(HEARD_ME, node))

    def probe_some(self) -> None:
        """Ping a few of those believed online, wherever they are in the order of rounds."""
        online = self.view.online_nodes()
        some = online[draw(self._rng, len(online), math.ceil(PROBED * len(online)))].tolist()
        self.sampler.probe([node for node in some if node != self.me], self.newest_round)

    def probe_a_suspect(self) -> None:
        """One that is there after all, behind a cut that has healed, would else never hear of it."""
        suspects = self.view.suspected().nonzero()[0]
        if len(suspects):
            # Its silence is no news; but it may be back by the time that has lasted long enough.
            self.sampler.probe((int(self._rng.choice(suspects)),), self.newest_round, tries=-1)
