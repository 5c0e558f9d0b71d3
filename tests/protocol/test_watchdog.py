"""The watchdog: rounds whose workers all vanished start again, soon, once, and from the newest model."""

from __future__ import annotations

from plexus.protocol.facts import RoundRestarted
from tests.protocol.kit import Exchange

SHORT = {
    "aggregation_timeout_s": 30.0,
    "ack_timeout_s": 45.0,
    "readvertise_s": 60.0,
    "watchdog_s": 90.0,
}


def test_asking_many_silent_nodes_is_not_begun_anew_each_time_the_watchdog_fires() -> None:
    """59 of 60 are gone; asking them takes 118 s, the watchdog waits 90."""
    exchange = Exchange(60, sample_size=3, **SHORT)
    exchange.go_online(0)
    exchange.run_until(exchange.has_aggregated(3), limit_s=1000)
    assert len(exchange.of(RoundRestarted)) == 1
