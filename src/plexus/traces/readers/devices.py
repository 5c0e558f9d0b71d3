"""Recorded compute speed and bandwidth: FedScale's capacity trace, a CSV or JSON of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plexus.rng import array_stream
from plexus.traces.readers.files import Content, Record, fault, field_of, load, number, records
from plexus.traces.world import Device

KBPS_TO_BYTES_PER_S = 125.0
"""A kilobit is 1000 bits."""

COMPUTE = ("compute_ms_per_sample", "computation", "computation_ms_per_sample")
BOTH_WAYS = ("kbps", "communication", "communication_kbps", "communication_kbps_int")
UP = "up_kbps"
DOWN = "down_kbps"


@dataclass(frozen=True)
class DeviceTrace:
    """Compute and bandwidth of recorded devices, one entry per device."""

    compute_ms_per_sample: NDArray[np.float64]
    up_bytes_per_s: NDArray[np.float64]
    down_bytes_per_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.compute_ms_per_sample)

    def choose(self, indices: NDArray[np.intp]) -> list[Device]:
        """The devices at `indices`, each with its own compute and its own bandwidth."""
        columns = (self.compute_ms_per_sample, self.up_bytes_per_s, self.down_bytes_per_s)
        rows = np.column_stack([column[indices] for column in columns]).tolist()
        return [Device(*row) for row in rows]


def read_devices(path: Path) -> DeviceTrace:
    """A capacity trace: FedScale's pickle, JSON of the same fields, or a CSV."""
    return devices_from(path, load(path))


def devices_from(path: Path, content: Content) -> DeviceTrace:
    """The devices in a loaded file."""
    found = records(path, content)
    fields = _fields(path, found[0])
    rows = np.array([_device(path, record, fields) for record in found])
    rows[:, 1:] *= KBPS_TO_BYTES_PER_S
    return DeviceTrace(rows[:, 0], rows[:, 1], rows[:, 2])


def _fields(path: Path, first: Record) -> tuple[str, str, str]:
    compute = field_of(path, first, COMPUTE)
    if UP in first[1] or DOWN in first[1]:
        return compute, UP, DOWN
    both = field_of(path, first, BOTH_WAYS)
    return compute, both, both


def _device(path: Path, record: Record, fields: tuple[str, str, str]) -> list[float]:
    values = []
    for field in fields:
        if field not in record[1]:
            raise fault(path, record[0], field, "missing")
        values.append(number(path, record[0], field, record[1][field], positive=True))
    return values


def choose_devices(recorded: int, nodes: int, seed: int, kind: str) -> NDArray[np.intp]:
    """A seeded choice, one recorded device per node; none twice before all were chosen once."""
    rng = array_stream(seed, "traces", kind, "choice")
    rounds = [rng.permutation(recorded) for _ in range(-(-nodes // recorded))]
    return np.concatenate(rounds)[:nodes].astype(np.intp)
