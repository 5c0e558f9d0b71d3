"""Quantities as people read them."""

from __future__ import annotations

import pytest

from plexus import quantities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (quantities.metric("accuracy", 0.96449), "96.4 %"),
        (quantities.metric("mse", 1.49376), "1.494"),
        (quantities.metric("accuracy", None), "–"),
        (quantities.metric("mse", float("nan")), "–"),
        (quantities.size(0), "0 B"),
        (quantities.size(999), "999 B"),
        (quantities.size(1000), "1 kB"),
        (quantities.size(346_200), "346 kB"),
        (quantities.size(999_600), "1 MB"),
        (quantities.size(12_345_678), "12.3 MB"),
        (quantities.size(5e15), "5000 TB"),
        (quantities.clock(59.6), "1:00"),
        (quantities.clock(3725), "1:02:05"),
        (quantities.hours(45_000), "12.5"),
        (quantities.hours(3600 * 12345.6), "12,346"),
    ],
)
def test_quantity(text: str, expected: str) -> None:
    assert text == expected


def test_numbers_that_follow_each_other_are_a_range() -> None:
    assert quantities.ranges([1, 2, 3, 4, 5]) == "1..5"
    assert quantities.ranges([7, 2, 1]) == "1, 2, 7"
    assert quantities.ranges([3, 9, 10, 11]) == "3, 9..11"
    assert quantities.ranges([]) == ""
