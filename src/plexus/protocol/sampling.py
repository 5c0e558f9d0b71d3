"""Deriving samples (the paper's section III-D and Algorithm 1).

`SampleSearch` is the search itself, pure: told who answered and that the others stayed silent, it says
whom to ping next. `Sampler` turns its answers into pings, pongs and timeouts on behalf of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from plexus.protocol.facts import AnsweredLate
from plexus.protocol.machine import Machine
from plexus.protocol.messages import Model, NodeId, Ping
from plexus.protocol.view import NONE

REMEMBERED = 16
"""Exchanges that timed out, to notice answers that come later."""


class SampleSearch:
    """The first `size` of `candidates` that answer a ping.

    As many as are missing are contacted at a time, at first `size`; or one by one. The searching node
    answers itself, without a message.
    """

    __slots__ = (
        "_answered", "_asked", "_candidates", "_me", "_one_by_one", "_size", "_waiting", "ahead",
        "busy", "silent",
    )  # fmt: skip

    def __init__(self, me: NodeId, candidates: Sequence[NodeId], size: int, one_by_one: bool = False) -> None:
        self._me = me
        self._candidates = candidates
        self._size = size
        self._one_by_one = one_by_one
        self._asked: list[NodeId] = []
        """The first of the candidates."""
        self._waiting: set[NodeId] = set()
        self._answered: set[NodeId] = set()
        self.busy: set[NodeId] = set()
        """Those who answered that they are."""
        self.ahead: set[NodeId] = set()
        """Those who answered that they hold a model of the round for which this is the sample."""
        self.silent = 0

    @property
    def done(self) -> bool:
        """Enough have answered, or nobody is left to ask."""
        if len(self._answered) >= self._size:
            return True
        asked = len(self._asked)
        return not self._waiting and not self._candidates[asked : asked + 1]

    @property
    def waiting(self) -> tuple[NodeId, ...]:
        """Those whose answers are awaited, in hash order."""
        return tuple([c for c in self._asked if c in self._waiting])

    @property
    def found(self) -> tuple[NodeId, ...]:
        """Those that answered, in hash order."""
        return tuple([c for c in self._asked if c in self._answered])

    def to_ping(self) -> tuple[NodeId, ...]:
        """Whom to contact now; nobody while answers are still awaited."""
        contact: list[NodeId] = []
        while not self._waiting and not self.done:
            missing = 1 if self._one_by_one else self._size - len(self._answered)
            asked = len(self._asked)
            batch = self._candidates[asked : asked + missing]
            self._asked += batch
            contact = [c for c in batch if c != self._me]
            self._waiting.update(contact)
            if len(contact) < len(batch):
                self._answered.add(self._me)
        return tuple(contact)

    def answered(self, node: NodeId) -> bool:
        """`node` answered in time. Says whether the contact under way is thereby settled."""
        if node not in self._waiting:
            return False
        self._waiting.remove(node)
        self._answered.add(node)
        return not self._waiting

    def timed_out(self) -> set[NodeId]:
        """Those contacted and not heard of within the ping timeout are taken as offline: these."""
        silent, self._waiting = self._waiting, set()
        self.silent += len(silent)
        return silent


PROBE = "probe"


class Search(Struct, frozen=True):
    """A search on the way: for what, the sample of which round, and the round its pings speak of."""

    purpose: str
    round: int
    sample: SampleSearch
    announced: int
    ordinal: int = 0
    model: Model = None
    """What the sample is to be sent, if that is settled already."""
    tries: int = 0
    """Of a probe: how often its silent ones are probed again before they are gone; below 0 never."""
    among_suspects: bool = False
    """Whether those suspected to be gone were candidates too, after the others."""


class Sampler:
    """The node's searches: at most one per purpose, each with its own ping-pong exchanges.

    With `gone`, silence is looked into. Who has not answered after half of the timeout is pinged again;
    who stays silent in a search is probed: pinged once more on its own, with as much time. Then it is gone.
    """

    __slots__ = (
        "_found", "_gone", "_last_exchange", "_node", "_ping_timeout_s", "_reminded", "_timed_out",
        "exchanges",
    )  # fmt: skip

    def __init__(
        self,
        node: Machine,
        ping_timeout_s: float,
        found: Callable[[Search], None],
        gone: Callable[[NodeId], None] | None = None,
    ) -> None:
        self._node = node
        self._ping_timeout_s = ping_timeout_s
        self._found = found
        self._gone = gone
        self._last_exchange = 0
        self.exchanges: dict[int, Search] = {}
        """Under way. A batch of pings shares one number; with the answering node it names one exchange."""
        self._reminded: frozenset[int] = NONE
        """Exchanges in which those who were silent have been pinged again."""
        self._timed_out: dict[int, tuple[float, set[NodeId]]] = {}
        """Some exchanges in which not all answered in time: when they began, and who stayed silent."""

    def begin(self, search: Search) -> None:
        """Start a search; one with the same purpose is given up."""
        self.give_up(search.purpose)
        self._go_on(search)

    def probe(self, nodes: Iterable[NodeId], announced: int, tries: int = 1) -> None:
        """Are they there? Those that are being asked already are not asked again."""
        probes = [search.sample for search in self.exchanges.values() if search.purpose == PROBE]
        asked = {node for probe in probes for node in probe.waiting}
        fresh = [node for node in nodes if node not in asked]
        if fresh:
            sample = SampleSearch(self._node.me, fresh, len(fresh))
            self._go_on(Search(PROBE, announced, sample, announced, tries=tries))

    def give_up(self, purpose: str) -> None:
        for exchange in [number for number, search in self.exchanges.items() if search.purpose == purpose]:
            self._close(exchange)

    def reset(self) -> None:
        """Forget all searches (their timers are gone with the node's last session)."""
        self.exchanges.clear()
        self._reminded = NONE
        self._timed_out.clear()

    def is_searching(self, purpose: str) -> bool:
        return any(search.purpose == purpose for search in self.exchanges.values())

    def on_answer(self, node: NodeId, exchange: int) -> None:
        """`node` answered a ping."""
        search = self.exchanges.get(exchange)
        if search is None:
            began_at, silent = self._timed_out.get(exchange, (0.0, set()))
            if node in silent:
                silent.remove(node)
                self._node.report(AnsweredLate(node, self._node.now - began_at))
        elif search.sample.answered(node):
            self._close(exchange)
            if search.purpose != PROBE:  # of which all were asked at once
                self._go_on(search)

    def on_timeout(self, exchange: int) -> None:
        search = self.exchanges.get(exchange)
        if search is None:
            return
        if self._gone is not None and exchange not in self._reminded:
            self._reminded |= {exchange}
            self._ask(exchange, search.sample.waiting, search.announced)
            return
        self._forget(exchange)
        waiting, silent = search.sample.waiting, search.sample.timed_out()
        if len(self._timed_out) >= REMEMBERED:
            del self._timed_out[next(iter(self._timed_out))]
        self._timed_out[exchange] = self._node.now - self._ping_timeout_s, silent
        if self._gone is not None:
            self._on_silence(search, waiting)
        if search.purpose != PROBE:
            self._go_on(search)

    def _on_silence(self, search: Search, silent: tuple[NodeId, ...]) -> None:
        assert self._gone is not None
        if search.purpose != PROBE:
            self.probe(silent, search.announced, tries=0)
        elif search.tries > 0:
            self.probe(silent, search.announced, search.tries - 1)
        elif search.tries == 0:
            for node in silent:
                self._gone(node)

    def _go_on(self, search: Search) -> None:
        contact = search.sample.to_ping()
        if contact:
            self._last_exchange += 1
            self.exchanges[self._last_exchange] = search
            self._ask(self._last_exchange, contact, search.announced)
        elif search.purpose != PROBE:
            self._found(search)

    def _ask(self, exchange: int, nodes: tuple[NodeId, ...], announced: int) -> None:
        wait_s = self._ping_timeout_s if self._gone is None else self._ping_timeout_s / 2
        self._node.send(nodes, Ping(exchange, announced))
        self._node.set_timer(("ping", exchange), wait_s)

    def _close(self, exchange: int) -> None:
        self._forget(exchange)
        self._node.cancel_timer(("ping", exchange))

    def _forget(self, exchange: int) -> None:
        del self.exchanges[exchange]
        if self._reminded:
            self._reminded -= {exchange}
