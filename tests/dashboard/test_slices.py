"""Columns made small enough for a picture."""

from __future__ import annotations

import numpy as np

from plexus.dashboard.slices import binned, peaks, plain
from plexus.report.measuring import evenly


def test_a_thinned_curve_keeps_what_stands_out() -> None:
    values = np.sin(np.linspace(0, 300, 50_000))
    values[31_234] = 9.0
    kept = peaks(values, 600)
    assert len(kept) <= 602
    assert {0, 31_234, 49_999} <= set(kept.tolist())
    assert evenly(10, 4).tolist() == [0, 3, 6, 9]


def test_bins_hold_means_and_every_row() -> None:
    rows = 1000
    table = {
        "began_s": np.arange(rows) * 10.0,
        "simulated_s": np.arange(rows) * 10.0 + 10,
        "round": np.arange(rows),
        "x_s": np.ones(rows),
    }
    found = binned(table, ("x_s",), most=30)
    assert len(found["x_s"]) == 30 and sum(found["rounds"]) == rows
    assert set(found["x_s"]) == {1}
    assert (found["from_s"][0], found["to_s"][-1]) == (0, 10_000)


def test_numbers_become_short_and_unknown_ones_null() -> None:
    assert plain({"a": np.array([1.0, 2.0]), "b": np.array([0.12345, np.nan])}, 3)["a"] == [1, 2]
    assert plain({"b": np.array([0.12345])}, 3) == {"b": [0.123]}
