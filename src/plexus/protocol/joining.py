"""Coming online: ask a few whom they know, then tell a random set of those (section III-E, and before it).

The view that a node comes back with is as old as its absence: of the nodes it believes online many are long
gone, and its joined would be lost on them. So it first pings a few, takes the view of one that knows of the
newest round, and only then advertises itself. Who is asked and silent is suspected as in any search.
"""

from __future__ import annotations

from collections.abc import Callable

from plexus.protocol.machine import Machine
from plexus.protocol.membership import Membership
from plexus.protocol.messages import NodeId
from plexus.protocol.sampling import Sampler, SampleSearch, Search

VIEW = ("view", 0)
COMING = "coming"
"""What the search for somebody to ask is for."""
ASKED = 8
TRIES = 3
"""How often others are pinged if nobody answers, and how many are asked for their view if none comes."""
REPLY_TIMEOUTS = 15
"""How many ping timeouts a view may take: it is larger than a pong."""


class Joining:
    """From `WentOnline` until the node has advertised itself."""

    def __init__(
        self,
        node: Machine,
        membership: Membership,
        sampler: Sampler,
        ping_timeout_s: float,
        done: Callable[[], None],
    ) -> None:
        """`done` is called when the node has advertised itself."""
        self._node = node
        self._membership = membership
        self._sampler = sampler
        self._reply_s = REPLY_TIMEOUTS * ping_timeout_s
        self._done = done
        self._held = 0
        self._tries = 0
        self._rounds: dict[NodeId, int] = {}
        """The newest round of which each who answered knows."""
        self.is_under_way = False

    def begin(self, held: int) -> None:
        """The node is online, with a model of round `held`."""
        self.is_under_way = True
        self._held = held
        self._tries = 0
        self._rounds.clear()
        self._membership.come()
        self._look_around()

    def on_answer(self, src: NodeId, round: int) -> None:
        """`src` answered, and knows of `round`."""
        self._rounds[src] = round

    def on_sample(self) -> None:
        """All that were pinged have answered, or had the time to."""
        if not self._rounds and self._tries < TRIES:
            self._look_around()
        else:
            self._tries = 0
            self._ask()

    def on_timeout(self, _: int) -> None:
        """The view that was asked for does not come."""
        if self.is_under_way:
            self._ask()

    def end(self) -> None:
        """A view has come, or nobody has a newer one: tell others."""
        if self.is_under_way:
            self.is_under_way = False
            self._rounds.clear()
            self._sampler.give_up(COMING)
            self._node.cancel_timer(VIEW)
            self._membership.advertise()
            self._done()

    def _look_around(self) -> None:
        self._tries += 1
        some = self._membership.random_set(ASKED, anybody=self._tries == TRIES)
        sample = SampleSearch(self._node.me, list(some), ASKED)
        self._sampler.begin(Search(COMING, self._held, sample, self._held))

    def _ask(self) -> None:
        self._tries += 1
        best = max(self._rounds, key=self._rounds.__getitem__, default=None)
        if best is None or self._tries > TRIES or not self._rounds[best]:
            self.end()  # alone, or before the first round: nobody knows more
            return
        del self._rounds[best]
        self._node.send((best,), self._membership.lacking.ask())
        self._node.set_timer(VIEW, self._reply_s)
