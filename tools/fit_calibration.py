"""Finds the hourly rates behind a calibration of generated availability, as its
`start_rate_by_hour` was made.

    python tools/fit_calibration.py TRACE [CALIBRATION]

How many are online in an hour follows from who came online in the hours before, so the rates cannot
be read off the curve one wants. They are found by trying: generate, compare, correct, repeat.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from plexus.traces.describe.facts import online_by_hour
from plexus.traces.readers.availability import read_availability
from plexus.traces.synthetic import CALIBRATIONS, Calibration, generate_availability


def fit_start_rates(
    calibration: Calibration, wanted: NDArray[np.float64], nodes: int = 20_000, rounds: int = 16
) -> Calibration:
    """The calibration with rates that bring the shape of its day close to `wanted`, 24 shares.

    Only the shape is fitted; the level is set by `share_alpha` and `share_beta`.
    """
    rate = np.ones(24)
    for attempt in range(rounds):
        calibration = replace(calibration, start_rate_by_hour=tuple(np.round(rate, 2).tolist()))
        generated = generate_availability(nodes, calibration, seed=attempt)
        found = online_by_hour(generated.sessions, generated.periods_s)
        correction = (wanted / wanted.mean()) / (found / found.mean())
        # An hour's rate moves its share by less than its own part; later, what is left is noise.
        rate = np.clip(rate * correction ** (2 if attempt < rounds / 2 else 1), 0.1, 4.0)
        rate /= rate.mean()
    return replace(calibration, peak_online=round(float(found.max()), 3))


if __name__ == "__main__":
    trace = read_availability(Path(sys.argv[1]))
    start = CALIBRATIONS[sys.argv[2] if len(sys.argv) > 2 else "strict"]
    print(fit_start_rates(start, online_by_hour(trace.sessions, trace.periods_s)).start_rate_by_hour)
