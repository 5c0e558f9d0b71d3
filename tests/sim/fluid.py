"""A deliberately dumb model of concurrent transfers, written from the rules' definitions.

Exact (fractions), global and forgetful: at every event all rates are worked out anew from nothing
but the list of flows. The simulator's sharing rules must agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Pair = tuple[int, int]
"""Sender and receiver."""


@dataclass(frozen=True)
class Capacities:
    up: Sequence[float]
    down: Sequence[float]


@dataclass(frozen=True)
class Start:
    """Flows that begin together: (sender, receiver, bytes)."""

    flows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Cut:
    node: int


Script = Sequence[tuple[float, Start | Cut]]
"""What happens from outside, each after a pause in seconds."""


@dataclass
class Outcome:
    """How a flow ended: complete or cut."""

    ended_s: float | Fraction
    sent_bytes: float | Fraction


Rates = Callable[[Capacities, Sequence[Pair]], list[Fraction]]


def shared_rates(capacities: Capacities, pairs: Sequence[Pair]) -> list[Fraction]:
    senders, receivers = [src for src, _ in pairs], [dst for _, dst in pairs]
    return [
        min(
            Fraction(capacities.up[src]) / senders.count(src),
            Fraction(capacities.down[dst]) / receivers.count(dst),
        )
        for src, dst in pairs
    ]


def fifo_rates(capacities: Capacities, pairs: Sequence[Pair]) -> list[Fraction]:
    up, down = list(map(Fraction, capacities.up)), list(map(Fraction, capacities.down))
    rates = []
    for src, dst in pairs:
        rate = min(up[src], down[dst])
        up[src] -= rate
        down[dst] -= rate
        rates.append(rate)
    return rates


def fair_rates(capacities: Capacities, pairs: Sequence[Pair]) -> list[Fraction]:
    """Raise all flows together by the most that every link allows; who meets a full link stays."""
    left = [*map(Fraction, capacities.up), *map(Fraction, capacities.down)]
    nodes = len(capacities.up)
    rates = [Fraction(0)] * len(pairs)
    rising = set(range(len(pairs)))
    while rising:
        on_link = [
            [flow for flow in rising if link in (pairs[flow][0], nodes + pairs[flow][1])]
            for link in range(2 * nodes)
        ]
        step = min(left[link] / len(flows) for link, flows in enumerate(on_link) if flows)
        for flow in rising:
            rates[flow] += step
        for link, flows in enumerate(on_link):
            left[link] -= step * len(flows)
        rising -= {flow for link, flows in enumerate(on_link) if left[link] == 0 for flow in flows}
    return rates


DUMB_RATES: dict[str, Rates] = {"shared": shared_rates, "fair": fair_rates, "fifo": fifo_rates}


def loads(nodes: int, pairs: Sequence[Pair], rates: Iterable[float]) -> tuple[list, list]:
    """What every up link and every down link carries."""
    up, down = [0.0] * nodes, [0.0] * nodes
    for (src, dst), rate in zip(pairs, rates, strict=True):
        up[src] += rate
        down[dst] += rate
    return up, down


@dataclass
class _Running:
    number: int
    pair: Pair
    remaining_bytes: Fraction


def run_fluid(rule: Rates, capacities: Capacities, script: Script) -> list[Outcome]:
    """Play `script` from event to event; the outcomes of its flows in start order."""
    now, pause_from = Fraction(0), Fraction(0)
    running: list[_Running] = []
    sizes: list[int] = []
    outcomes: dict[int, Outcome] = {}

    def end(flow: _Running) -> None:
        running.remove(flow)
        outcomes[flow.number] = Outcome(now, sizes[flow.number] - flow.remaining_bytes)

    def advance(until: Fraction | None) -> None:
        nonlocal now
        while running and (until is None or now < until):
            rates = rule(capacities, [flow.pair for flow in running])
            ends = [f.remaining_bytes / r for f, r in zip(running, rates, strict=True) if r]
            elapsed = min(ends) if until is None else min(*ends, until - now)
            for flow, rate in zip(list(running), rates, strict=True):
                flow.remaining_bytes -= rate * elapsed
            now += elapsed
            for flow in list(running):
                if flow.remaining_bytes == 0:
                    end(flow)
        if until is not None:
            now = until

    for pause_s, action in script:
        pause_from += Fraction(pause_s)
        advance(pause_from)
        if isinstance(action, Start):
            for src, dst, size in action.flows:
                running.append(_Running(len(sizes), (src, dst), Fraction(size)))
                sizes.append(size)
        else:
            for flow in [f for f in running if action.node in f.pair]:
                end(flow)
    advance(None)
    return [outcomes[number] for number in range(len(sizes))]
