"""Recorded compute speed and bandwidth: FedScale's capacity trace, a CSV or JSON of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream
from plexus.traces.readers.files import Content, field_of, load, number_in, records
from plexus.traces.world import Device

KBPS_TO_BYTES_PER_S = 125.0
"""A kilobit is 1000 bits."""

COMPUTE = ("compute_ms_per_sample", "computation", "computation_ms_per_sample")
BOTH_WAYS = ("kbps", "communication", "communication_kbps", "communication_kbps_int")
UP = "up_kbps"
DOWN = "down_kbps"


def read_devices(path: Path, content: Content | None = None) -> list[Device]:
    """A capacity trace: FedScale's pickle, JSON of the same fields, or a CSV.

    `content` is what the file holds, where that is loaded already.
    """
    found = records(path, load(path) if content is None else content)
    first = found[0]
    fields = [field_of(path, first, COMPUTE)]
    fields += [UP, DOWN] if UP in first[1] or DOWN in first[1] else 2 * [field_of(path, first, BOTH_WAYS)]
    values = ([number_in(path, record, field, positive=True) for field in fields] for record in found)
    return [Device(ms, up * KBPS_TO_BYTES_PER_S, down * KBPS_TO_BYTES_PER_S) for ms, up, down in values]


def choose_devices(recorded: int, nodes: int, seed: int, kind: str) -> NDArray[np.intp]:
    """A seeded choice, one recorded device per node; none twice before all were chosen once."""
    rng = array_stream(seed, "traces", kind, "choice")
    rounds = [rng.permutation(recorded) for _ in range(-(-nodes // recorded))]
    return np.concatenate(rounds)[:nodes].astype(np.intp)
