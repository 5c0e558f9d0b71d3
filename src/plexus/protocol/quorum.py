"""How many nodes must stand behind a round, and how much those who do count.

A node that is cut off cannot tell whether it is alone or all others are. Two rules keep it from taking over
when it is found again:

- *Quorum.* Nobody goes on without half of those who should be there, as long as the silent ones may just be
  cut off; then it asks these too, pauses and tries again. Whoever said goodbye is not missed.
- *Order.* Rounds are numbers, and the greater one prevails. A round's number exceeds that of the round before
  by the square of the nodes that its aggregator believes online: so of two sides that went on apart the one
  with more nodes is ahead, not the one that was faster. How many rounds led to one is its ordinal.

The believed number is cut to its leading digits, lest two aggregators of one round, who know almost the same,
part there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from plexus.protocol.facts import QuorumMissing
from plexus.protocol.machine import Machine
from plexus.protocol.membership import Membership
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.sampling import Search

FIRST_SAMPLE, PARTICIPANTS, RESTART = PURPOSES = ("first sample", "participants", "restart")
"""What a search is for that needs a quorum."""
PAUSE = 1 / 15
"""As a share of `ack_timeout_s`: how long to wait before those who are missing are looked for again."""
DIGITS = 3
"""Leading binary digits of the number of nodes that count."""
MAX_STEP = 2**40
"""Somebody may claim any step; nobody believes so many nodes online."""


def quorum(sample_size: int, online: int, missing: int) -> int:
    """How many of a sample must answer: half of it, with `online` nodes and so many `missing` ones."""
    return math.ceil(min(sample_size, online + missing) / 2)


def step(online: int) -> int:
    """By how much a round's number grows, if its aggregator believes so many nodes online."""
    spare = max(0, online.bit_length() - DIGITS)
    return int(max(1, online >> spare << spare)) ** 2


class Quorum:
    """Searches that found too few to go on."""

    def __init__(
        self,
        node: Machine,
        parameters: PlexusParameters,
        membership: Membership,
        again: Callable[[Search], None],
    ) -> None:
        """`again(search)` looks for the same sample once more, now also among those suspected to be gone."""
        self._node = node
        self._parameters = parameters
        self._membership = membership
        self._again = again
        self._waiting: dict[str, tuple[Search, float]] = {}
        """By purpose: a search that found too few, and since when that is so."""

    def is_missing(self, search: Search) -> bool:
        """Whether the search found too few. If so, it is made again, and not for ever: after `watchdog_s` the
        node goes on with those it has, since by then the others may be gone for good."""
        found, needed = len(search.sample.found), self._needed()
        _, since = self._waiting.pop(search.purpose, (search, self._node.now))
        alone = self._is_alone(found)
        if (found >= needed and not alone) or self._node.now - since >= self._parameters.watchdog_s:
            return False
        self._waiting[search.purpose] = search, since
        if search.among_suspects:
            self._node.report(QuorumMissing(search.round, search.ordinal, found, needed))
            self._node.set_timer(("quorum", PURPOSES.index(search.purpose)), self._pause_s)
        else:
            self._again(search)
        return True

    def is_waiting(self, purpose: str) -> bool:
        return purpose in self._waiting

    def on_timeout(self, number: int) -> None:
        purpose = PURPOSES[number]
        if purpose in self._waiting:
            self._again(self._waiting[purpose][0])

    def give_up(self, purpose: str) -> None:
        if self._waiting.pop(purpose, None) is not None:
            self._node.cancel_timer(("quorum", PURPOSES.index(purpose)))

    def reset(self) -> None:
        self._waiting.clear()

    @property
    def _pause_s(self) -> float:
        return PAUSE * self._parameters.ack_timeout_s

    def _is_alone(self, found: int) -> bool:
        """Nobody else is there, though others may be. A sample of one says nothing about that."""
        view = self._membership.view
        there = found if self._parameters.sample_size > 1 else view.online_count()
        return there <= 1 and view.has_suspects

    def _needed(self) -> int:
        missing = self._membership.suspected_for_less_than(self._parameters.watchdog_s)
        online = self._membership.view.online_count()
        return quorum(self._parameters.sample_size, online, missing)
