"""The watchdog: starts a round again when everybody who worked on it has vanished.

The paper goes on "as long as one reliable participant" of a round survives. This covers the rest,
without an oracle and without a storm of restarts:

- every ping says for which round it samples and every pong which round the answering node knows of, so
  nodes notice progress they take no part in;
- a node that notices none for `watchdog_s` asks the next round's candidates one by one and stops at the
  first that knows of something newer (usually the first asked);
- the older a node's own model, the longer it waits, and it leaves the restart to whoever answers with a
  newer one; but not for long if its own is hardly older, because that one may have come back a moment ago
  and wait for its own `watchdog_s`, or vanish again;
- the node that restarts tells the sample before it sends the model, so that others who ask meanwhile
  hear of it;
- finding others alive and ahead makes a node patient: it asks half as often each time, until it works
  in a sample again;
- who comes back and meets nobody but others who have just come back too need not wait for so long: nobody
  is at work who could make progress;
- nor who sees the aggregator vanish that has its model, and hears of nobody who goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from plexus.protocol.machine import Machine
from plexus.protocol.parameters import PlexusParameters

WATCHDOG = ("watchdog", 0)
WAIT_PER_ROUND_BEHIND = 1 / 90
"""As a share of `watchdog_s`: sessions on fast networks set that to seconds."""
MAX_ROUNDS_BEHIND = 30
MAX_PATIENCE = 8
DEFERENCE = 1 / 8
"""As a share of `watchdog_s`: how long a restart is left to somebody whose model is a little newer."""
HURRY = 1 / 3
"""As a share of `ack_timeout_s`: how long to wait where all have just come back, or a model is lost."""
A_LITTLE = 3
"""Rounds. Who is further behind loses more by its own restart than the others lose by waiting."""


class Watchdog:
    """When the node last noticed progress, and how long it waits for more."""

    __slots__ = (
        "_deferred_at", "_hurry_s", "_node", "_patience", "_pause_s", "_progress_at", "_restarted",
        "_rng", "_usual_step", "_watchdog_s", "has_waited", "is_hurried", "is_orphaned", "k_seen", "step",
    )  # fmt: skip

    def __init__(
        self,
        node: Machine,
        parameters: PlexusParameters,
        rng: Random,
        k_seen: int,
        usual_step: Callable[[], int] = lambda: 1,
    ) -> None:
        """`usual_step()`: what the number of a round should grow by, with those who are there now."""
        self._node = node
        self._usual_step = usual_step
        self._watchdog_s = parameters.watchdog_s
        self._hurry_s = HURRY * parameters.ack_timeout_s
        self.is_hurried = False
        """All have just come back, as it seems."""
        self.is_orphaned = False
        """Who made the newest model is gone, as it seems, and nobody goes on with it."""
        self.has_waited = False
        """It left a restart to others, who are ahead as one of them said, and has seen no progress since."""
        self._rng = rng
        self._progress_at = 0.0
        self._pause_s = 0.0
        self._patience = 1
        self.step = 1
        """What the number of a round grew by when the node last took part in one."""
        self.k_seen = k_seen
        """The newest round the node knows of, from whatever message."""
        self._deferred_at = -1
        self._restarted = 0
        """The newest round that the node itself started again."""

    def notice(self, k: int, is_progress: bool = True) -> None:
        """Somebody works on round k, as one says; it `is_progress` if that is sure."""
        if k > self.k_seen:
            self.k_seen = k
            self.is_hurried = self.is_orphaned = False
        if is_progress:
            self.has_waited = False
            self._pause_s = self._node.now - self._progress_at
            self._progress_at = self._node.now

    @property
    def progress_at(self) -> float:
        """When the node last noticed progress, or came online."""
        return self._progress_at

    @property
    def pause_s(self) -> float:
        """For how long there was no progress, before the last or until now."""
        return max(self._pause_s, self._node.now - self._progress_at)

    def notice_own_work(self, k: int) -> None:
        """The node itself works on round k."""
        self.notice(k, is_progress=k > self.k_seen)
        self._progress_at = self._node.now
        if k > self._restarted:
            self._patience = 1

    def restart(self, k: int) -> None:
        """The node starts round k. If that leads to nothing, it waits longer the next time: its link may be
        too slow to reach the sample within `watchdog_s`, and each try makes it slower."""
        self._restarted = k
        self.notice_own_work(k)
        self.others_are_ahead()

    def start(self, held: int) -> None:
        """The node came online."""
        self._progress_at = self._node.now
        self._patience = 1
        self.is_hurried = self.is_orphaned = False
        self._node.set_timer(WATCHDOG, self._wait_s(held))

    def hurry(self, held: int, is_so: bool = True) -> None:
        """Whether all have just come back turns out anew."""
        self.is_hurried = is_so
        self._node.set_timer(WATCHDOG, self._wait_s(held))

    def orphan(self, held: int) -> None:
        """Who has the models of the newest round is gone before anybody went on."""
        self.is_orphaned = True
        self._node.set_timer(WATCHDOG, self._wait_s(held))

    def is_due(self, held: int) -> bool:
        """The timer ran out: was there really no progress? Sets the timer anew in any case."""
        self.is_orphaned &= self._node.now - self._progress_at < self._watchdog_s
        wait_s = self._wait_s(held)
        left_s = self._progress_at + wait_s - self._node.now
        self._node.set_timer(WATCHDOG, left_s if left_s > 0 else wait_s)
        return left_s <= 0

    def others_are_ahead(self) -> None:
        self._patience = min(2 * self._patience, MAX_PATIENCE)

    def defer(self, held: int) -> None:
        """Somebody holds a newer model, but has not begun a round: it gets some time to do so."""
        if self._behind(held) > A_LITTLE:
            self.others_are_ahead()
            return
        self._deferred_at = self.k_seen
        self._node.set_timer(WATCHDOG, DEFERENCE * self._least_s)

    @property
    def has_deferred(self) -> bool:
        """The restart was left to somebody else, and nothing has happened since."""
        return self._deferred_at == self.k_seen

    def _wait_s(self, held: int) -> float:
        behind = min(self._behind(held), MAX_ROUNDS_BEHIND)
        stagger = WAIT_PER_ROUND_BEHIND * (behind + self._rng.random())
        return self._least_s * (self._patience + stagger)

    @property
    def is_early(self) -> bool:
        """There is reason not to wait for as long as usual."""
        return self.is_hurried or self.is_orphaned

    @property
    def _least_s(self) -> float:
        return self._hurry_s if self.is_early else self._watchdog_s

    @property
    def stride(self) -> int:
        """What the number of a round grows by. Of its last rounds the first has the step 1."""
        return max(self.step, self._usual_step())

    def _behind(self, held: int) -> int:
        """About how many rounds `held` is behind."""
        return (self.k_seen - held) // self.stride
