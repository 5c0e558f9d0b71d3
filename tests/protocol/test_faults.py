"""Whatever the network and the devices do: no handler fails, no node stalls, and learning goes on.

The kit checks its invariants after every event. A failure prints the numbers that reproduce it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.messages import Message, NodeId
from plexus.testing.exchange import is_model
from tests.protocol.kit import Exchange

QUIET_FROM_S = 600.0
SHORT: dict[str, Any] = {
    "aggregation_timeout_s": 30.0,
    "ack_timeout_s": 45.0,
    "readvertise_s": 60.0,
    "watchdog_s": 90.0,
}
"""Timeouts that let ten minutes show what takes hours with the defaults."""


class Storm:
    """A network that loses, delays and duplicates until it is told to calm down."""

    def __init__(self, seed: int, loss: float, duplicates: float, longest_s: float) -> None:
        self.rng = Random(seed)
        self.loss = loss
        self.duplicates = duplicates
        self.longest_s = longest_s

    def delays(self, src: NodeId, dst: NodeId, body: Message) -> Sequence[float]:
        if self.rng.random() < self.loss:
            return ()
        copies = 2 if self.rng.random() < self.duplicates else 1
        least_s = 1.0 if is_model(body) else 0.05
        return [least_s + self.rng.random() * self.longest_s for _ in range(copies)]

    def calm_down(self) -> None:
        self.loss, self.duplicates, self.longest_s = 0.0, 0.0, 0.0


def churn(exchange: Exchange, rng: Random, mean_s: float) -> None:
    """Nodes come, leave and crash until the storm is over; then all are back."""
    n = len(exchange.nodes)
    while exchange.now < QUIET_FROM_S:
        exchange.run(min(QUIET_FROM_S, exchange.now + rng.expovariate(n / mean_s)))
        node = rng.randrange(n)
        if node not in exchange.online:
            come_back(exchange, node, rng)
        elif rng.random() < 0.5:
            exchange.leave(node)
        else:
            exchange.crash(node)
    exchange.go_online(*(node for node in range(n) if node not in exchange.online))


def come_back(exchange: Exchange, node: NodeId, rng: Random) -> None:
    """The same process again, as in a simulation, or another one, as in a deployment."""
    chance = rng.random()
    if chance < 0.5:
        exchange.go_online(node)
    else:
        exchange.restart(node, disk_is_lost=chance > 0.9)


@settings(max_examples=40)
@given(
    n=st.integers(1, 9),
    s=st.integers(1, 5),
    success_fraction=st.sampled_from([0.3, 0.8, 1.0]),
    loss=st.sampled_from([0.0, 0.05, 0.4]),
    duplicates=st.sampled_from([0.0, 0.3]),
    longest_s=st.sampled_from([0.0, 0.5, 5.0]),
    mean_s=st.sampled_from([20.0, 100.0, 1000.0]),
    seed=st.integers(0, 2**32),
)
def test_a_session_survives_a_storm_and_then_makes_progress(
    n: int,
    s: int,
    success_fraction: float,
    loss: float,
    duplicates: float,
    longest_s: float,
    mean_s: float,
    seed: int,
) -> None:
    storm = Storm(seed, loss, duplicates, longest_s)
    exchange = Exchange(
        n,
        sample_size=s,
        success_fraction=success_fraction,
        delays=storm.delays,
        training_s=lambda node: 3.0 + 4 * node,
        seed=seed,
        **SHORT,
    )
    exchange.go_online(*range(n))
    churn(exchange, storm.rng, mean_s)
    storm.calm_down()
    newest = max(node.watchdog.k_seen for node in exchange.nodes)
    exchange.run_until(exchange.has_gone_on(newest, 5), limit_s=exchange.now + 5000)


@given(n=st.integers(4, 12), s=st.integers(2, 4), cut=st.integers(1, 11), seed=st.integers(0, 2**32))
@settings(max_examples=6)
def test_the_halves_of_a_partition_go_on_and_become_one_session_again(
    n: int, s: int, cut: int, seed: int
) -> None:
    """Each half goes on with its own rounds. When they meet, the one that is ahead takes the other along."""
    rng = Random(seed)
    half = set(rng.sample(range(n), min(cut, n - 1)))
    until_s = 1600.0

    def delays(src: NodeId, dst: NodeId, body: Message) -> Sequence[float]:
        parted = 100.0 < exchange.now < until_s and (src in half) != (dst in half)
        return () if parted else (1.0 if is_model(body) else 0.05,)

    exchange = Exchange(n, sample_size=s, delays=delays, seed=seed, **SHORT)
    exchange.go_online(*range(n))
    exchange.run(until_s)
    for part in (half, set(range(n)) - half):
        assert any(node in part for at, node, _ in exchange.of(AggregationCompleted) if at > 400)
    newest = max(exchange.rounds)
    exchange.run_until(exchange.has_aggregated(newest + 30), limit_s=until_s + 5000)
    recent = exchange.rounds[-10:]
    assert recent == sorted(set(recent)), "one aggregation a round, one after the other"


def test_the_same_seed_gives_the_same_session_and_another_seed_another() -> None:
    def messages(seed: int) -> list[tuple[float, NodeId, NodeId, str]]:
        storm = Storm(seed, 0.1, 0.1, 1.0)
        exchange = Exchange(8, sample_size=3, seed=seed, delays=storm.delays, **SHORT)
        exchange.go_online(*range(8))
        churn(exchange, storm.rng, 100.0)
        return [(at, src, dst, repr(body)) for at, src, dst, body in exchange.messages]

    assert messages(1) == messages(1)
    assert messages(1) != messages(2)
