"""The congestion window of a link: it fills the link and lets others through."""

from __future__ import annotations

import pytest

from plexus.live.transport.link import INITIAL_BYTES, MIN_BYTES, Window


def carried(rate: float, idle_s: float, seconds: float) -> tuple[Window, float]:
    """A window after some time on a link of this rate: it, and the longest that a chunk took."""
    window, now, free_at = Window(), 0.0, 0.0
    arrivals: list[float] = []
    longest = 0.0
    while now < seconds:
        while window.is_open:
            size = window.chunk_bytes
            free_at = max(free_at, now) + size / rate
            window.sent(size, now)
            arrivals.append(free_at + idle_s)
        previous, now = now, arrivals.pop(0)
        window.acknowledged(now)
        if previous > seconds / 2:
            longest = max(longest, window.bytes / rate)
    return window, longest


@pytest.mark.parametrize("rate", [1e5, 1e6, 1e7, 1e8])
@pytest.mark.parametrize("idle_s", [0.001, 0.05, 0.3])
def test_a_window_fills_the_link_and_queues_little_more(rate: float, idle_s: float) -> None:
    window, queue_s = carried(rate, idle_s, seconds=100.0 if rate < 1e7 else 20.0)
    assert window.bytes >= min(rate * idle_s, 60_000_000), "the link stands idle"
    assert queue_s <= 2 * idle_s + 0.03 + 2 * MIN_BYTES / rate, "others wait too long"


def test_a_crowded_way_closes_the_window_at_once() -> None:
    """Others came onto the link: what it carried without them is no measure any more."""
    window, now = Window(), 0.0
    for took_s in [0.001] * 20 + [0.3]:
        window.sent(100_000, now)
        now += took_s
        window.acknowledged(now)
        if took_s < 0.1:
            fast_bytes = window.bytes
    assert fast_bytes == pytest.approx(100e6 * 0.022, rel=0.01)
    assert window.bytes == MIN_BYTES


def test_an_acknowledgement_of_nothing_is_noticed() -> None:
    window = Window()
    assert not window.acknowledged(0.0)
    assert window.bytes == INITIAL_BYTES
