"""Transfers in virtual time: turns the rates of a sharing rule into instants of completion.

Most changes of a rate do not change what happens next, so the kernel is not told of each. It holds
one entry for each sending node, at or before the earliest completion among the node's flows. A
change that brings a completion before the entry moves the entry; any other leaves it alone, and an
entry that comes up too early is made again. Flows of one sender that end together stop together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from plexus.sim.kernel import Token
from plexus.sim.sharing import Flow, Sharing


class Transfers:
    """All transfers under way, with a kernel entry for each node that sends."""

    def __init__(
        self, sharing: Sharing, at: Callable[[float, Flow], Token], cancel: Callable[[Token], None]
    ) -> None:
        """`at(time_s, flow)` leads to a call of `completed(flow, time_s)` unless cancelled."""
        self.sharing = sharing
        self._at = at
        self._cancel = cancel
        self._tokens: list[Token | None] = [None] * len(sharing)
        self._entered_s = [inf] * len(sharing)
        """When each node's entry comes up; infinite where it has none."""

    def begin(self, flows: Sequence[Flow], now: float) -> None:
        """Start `flows`, all at this instant."""
        self._bring_forward(self.sharing.start(flows, now))

    def completed(self, flow: Flow, now: float) -> list[Flow]:
        """The entry made for `flow` came up: stop and return what its sender has sent completely.

        That is usually `flow`; it can be several flows, or none when rates have fallen since.
        """
        node = flow.src
        outgoing = self.sharing.sent_by(node)
        complete = [flow for flow in outgoing if flow.ends_s <= now]
        self._tokens[node] = None
        self._entered_s[node] = inf
        changed = self.sharing.stop(complete, now) if complete else []
        self._bring_forward([*outgoing, *changed])
        return complete

    def cut(self, node: int, now: float) -> list[Flow]:
        """Abort everything `node` sends or receives; each flow's `sent_bytes` had been sent."""
        return self.cut_flows(self.sharing.flows_of(node), now)

    def cut_sends(self, node: int, now: float) -> list[Flow]:
        """As `cut`, for what `node` sends alone."""
        return self.cut_flows(list(self.sharing.sent_by(node)), now)

    def cut_flows(self, flows: list[Flow], now: float) -> list[Flow]:
        """As `cut`, for these transfers."""
        self._bring_forward(self.sharing.stop(flows, now))
        for flow in flows:
            if not self.sharing.sent_by(flow.src):
                self._drop_entry(flow.src)
        return flows

    def resize(self, node: int, factor: float, now: float) -> None:
        """The links of `node` have `factor` times their usual capacity from now on."""
        self._bring_forward(self.sharing.resize(node, factor, now))

    def _bring_forward(self, changed: Iterable[Flow]) -> None:
        """Move the entries of nodes that now complete a flow before theirs comes up."""
        entered_s = self._entered_s
        earliest: dict[int, Flow] = {}
        for flow in changed:
            if flow.ends_s < entered_s[flow.src]:
                entered_s[flow.src] = flow.ends_s
                earliest[flow.src] = flow
        for node, flow in earliest.items():
            token = self._tokens[node]
            if token is not None:
                self._cancel(token)
            self._tokens[node] = self._at(flow.ends_s, flow)

    def _drop_entry(self, node: int) -> None:
        token = self._tokens[node]
        if token is not None:
            self._cancel(token)
            self._tokens[node] = None
            self._entered_s[node] = inf
