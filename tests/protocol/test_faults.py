"""Whatever the network and the devices do: no handler fails, no node stalls, and learning goes on.

The kit checks its invariants after every event. A failure prints the numbers that reproduce it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plexus.protocol.messages import Message, NodeId
from tests.protocol.kit import Exchange, is_model

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
            exchange.go_online(node)
        elif rng.random() < 0.5:
            exchange.leave(node)
        else:
            exchange.crash(node)
    exchange.go_online(*(node for node in range(n) if node not in exchange.online))


@settings(max_examples=60)
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
    exchange.run_until(exchange.has_aggregated(newest + 5), limit_s=exchange.now + 5000)
