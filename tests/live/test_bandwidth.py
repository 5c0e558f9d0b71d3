"""How a peer finds out its bandwidth from what it sends and receives."""

from __future__ import annotations

from plexus.live.transport.limits import KEPT, Meter


def test_bandwidth_is_the_lesser_of_the_best_both_ways() -> None:
    meter = Meter()
    assert meter.bytes_per_s == 0
    meter.note(1_000_000, 1.0, sent=True)
    assert meter.bytes_per_s == 0, "half known is not known"
    meter.note(3_000_000, 1.0, sent=False)
    meter.note(500_000, 1.0, sent=True)
    assert meter.bytes_per_s == 1_000_000


def test_small_transfers_say_nothing_and_old_ones_are_forgotten() -> None:
    meter = Meter(known_bytes_per_s=77)
    meter.note(1000, 0.000001, sent=True)
    meter.note(1000, 0.000001, sent=False)
    assert meter.bytes_per_s == 77
    for rate in (9_000_000, *[1_000_000] * KEPT):
        meter.note(rate, 1.0, sent=True)
        meter.note(rate, 1.0, sent=False)
    assert meter.bytes_per_s == 1_000_000
