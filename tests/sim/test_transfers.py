"""Transfers in time: what completes when, what a cut leaves, and what is asked of the kernel."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Any

import pytest
from hypothesis import given

from plexus.sim.network import Transfers
from plexus.sim.sharing import RULES, Flow
from tests.sim import strategies as draw
from tests.sim.fluid import DUMB_RATES, Capacities, Outcome, Script, Start, run_fluid

every_rule = pytest.mark.parametrize("rule", RULES)


class Kernel:
    """Virtual time, with nothing but transfers in it."""

    def __init__(self, rule: str, capacities: Capacities) -> None:
        self.now = 0.0
        self.entries: list[list[Any]] = []
        self.entered = 0
        self.sharing = RULES[rule](capacities.up, capacities.down)
        self.transfers = Transfers(self.sharing, self.at, self.cancel)
        self.arrived: list[tuple[float, Flow]] = []

    def at(self, time_s: float, flow: Flow) -> list[Any]:
        assert self.now <= time_s < inf
        self.entered += 1
        entry = [time_s, self.entered, flow]
        heappush(self.entries, entry)
        return entry

    def cancel(self, entry: list[Any]) -> None:
        assert entry[2] is not None, "cancelled twice, or after it came up"
        entry[2] = None

    def live(self) -> list[Flow]:
        return [flow for _, _, flow in self.entries if flow is not None]

    def run(self, until: float = inf) -> None:
        while self.entries and self.entries[0][0] <= until:
            entry = heappop(self.entries)
            time_s, _, flow = entry
            if flow is None:
                continue
            entry[2] = None
            self.now = time_s
            self.arrived += [(time_s, done) for done in self.transfers.completed(flow, time_s)]
        if until < inf:
            self.now = until


def run_transfers(rule: str, capacities: Capacities, script: Script) -> list[Outcome]:
    """Play `script` in virtual time; the outcomes of its flows in start order."""
    kernel = Kernel(rule, capacities)
    flows: list[Flow] = []
    ended_s: dict[Flow, float] = {}
    at_s = 0.0
    for pause_s, action in script:
        at_s += pause_s
        kernel.run(at_s)
        if isinstance(action, Start):
            begun = [Flow(src, dst, float(size)) for src, dst, size in action.flows]
            flows += begun
            kernel.transfers.begin(begun, at_s)
        else:
            gone = kernel.sharing.flows_of(action.node)
            kernel.transfers.cut(gone, at_s)
            ended_s |= dict.fromkeys(gone, at_s)
            check_gone(kernel, action.node, gone)
        senders = [flow.src for flow in kernel.live()]
        assert len(set(senders)) == len(senders), "one kernel entry for each sender"
    kernel.run()
    for time_s, flow in kernel.arrived:
        assert flow not in ended_s, "arrived twice, or after it was cut"
        assert flow.remaining_bytes == 0.0
        ended_s[flow] = time_s
    assert all(not kernel.sharing.flows_of(node) for node in range(draw.NODES))
    return [Outcome(ended_s[flow], flow.sent_bytes) for flow in flows]


def check_gone(kernel: Kernel, node: int, gone: list[Flow]) -> None:
    assert kernel.sharing.flows_of(node) == []
    assert all(node in (flow.src, flow.dst) for flow in gone)
    assert all(flow.rate_bytes_per_s == 0.0 for flow in gone)
    assert all(flow.src != node for flow in kernel.live())


@every_rule
@given(draw.round_capacities, draw.script)
def test_transfers_equal_the_dumb_fluid_model(rule, capacities, script):
    expected = run_fluid(DUMB_RATES[rule], capacities, script)
    outcomes = run_transfers(rule, capacities, script)
    assert len(outcomes) == len(expected)
    for outcome, exact in zip(outcomes, expected, strict=True):
        assert outcome.ended_s == pytest.approx(float(exact.ended_s), rel=1e-9, abs=1e-9)
        assert outcome.sent_bytes == pytest.approx(float(exact.sent_bytes), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("last_bytes", [0.3, 0.1 + 0.2])
def test_flow_that_is_complete_arrives_though_it_loses_its_rate_at_that_instant(last_bytes):
    """When 1 → 0 ends, 0 → 0 is topped up at the cost of 0 → 1, which ends just then as well."""
    kernel = Kernel("fifo", Capacities(up=[0.3, 0.3], down=[0.3, 0.3]))
    flows = [Flow(1, 0, 0.3), Flow(0, 0, 0.3), Flow(0, 1, last_bytes)]
    kernel.transfers.begin(flows, 0.0)
    kernel.run()
    assert [(round(time_s, 9), flow) for time_s, flow in kernel.arrived] == [
        (1.0, flows[0]),
        (1.0, flows[2]),
        (2.0, flows[1]),
    ]


@every_rule
@given(draw.round_capacities, draw.script)
def test_bytes_are_conserved(rule, capacities, script):
    """What the rates add up to over time is what the flows say they sent."""
    kernel = Kernel(rule, capacities)
    flows: list[Flow] = []
    carried: dict[Flow, float] = {}
    at_s = 0.0

    def advance(until_s: float) -> None:
        """One kernel entry after the other, adding up every flow's rate in between."""
        while True:
            live = [entry[0] for entry in kernel.entries if entry[2] is not None]
            next_s = min([*live, until_s])
            if next_s == inf:
                return
            for flow in flows:
                carried[flow] += flow.rate_bytes_per_s * (next_s - kernel.now)
            kernel.run(next_s)
            if next_s == until_s:
                return

    for pause_s, action in script:
        at_s += pause_s
        advance(at_s)
        if isinstance(action, Start):
            begun = [Flow(src, dst, float(size)) for src, dst, size in action.flows]
            carried |= dict.fromkeys(begun, 0.0)
            flows += begun
            kernel.transfers.begin(begun, at_s)
        else:
            kernel.transfers.cut(kernel.sharing.flows_of(action.node), at_s)
    advance(inf)
    for flow in flows:
        assert 0.0 <= flow.sent_bytes <= flow.total_bytes
        assert flow.sent_bytes == pytest.approx(carried[flow], rel=1e-6, abs=1e-6)
