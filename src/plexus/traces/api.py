"""What the rest of Plexus sees of a trace, whatever file or generator it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class Device(Struct, frozen=True):
    """One device's hardware: compute and bandwidth always come from the same device."""

    compute_ms_per_sample: float
    up_bytes_per_s: float
    down_bytes_per_s: float


@dataclass(frozen=True)
class Availability:
    """When each device is online."""

    sessions: Sequence[NDArray[np.float64]]
    """Per device, rows [start_s, end_s): sorted, disjoint, not touching, within [0, period_s]."""
    period_s: float
    """The trace repeats after this; infinite where it does not. A session that ends at the period and
    one that starts at 0 are one session across the wrap."""

    def toggles(self, device: int) -> Iterator[tuple[float, bool]]:
        """The changes of one device from time 0 on, in order: (time_s, online). Offline before."""
        sessions = self.sessions[device]
        offset_s, online_until_s = 0.0, -1.0
        while len(sessions):
            for start_s, end_s in sessions.tolist():
                if offset_s + start_s != online_until_s:
                    if online_until_s >= 0:
                        yield online_until_s, False
                    yield offset_s + start_s, True
                online_until_s = offset_s + end_s
            offset_s += self.period_s
            if np.isinf(offset_s):
                break
        if 0 <= online_until_s < np.inf:
            yield online_until_s, False

    def online_at(self, time_s: float) -> NDArray[np.bool_]:
        """Which devices are online at `time_s`."""
        within = time_s if np.isinf(self.period_s) else time_s % self.period_s
        return np.array(
            [bool(np.any((s[:, 0] <= within) & (within < s[:, 1]))) for s in self.sessions],
            np.bool_,
        )


@dataclass(frozen=True)
class Latency:
    """One-way delays between cities, and the city of each node."""

    matrix_s: NDArray[np.float64]
    city_of: NDArray[np.intp]


@dataclass(frozen=True)
class World:
    """The devices of a session: node i is device i, online by trace i, in city `latency.city_of[i]`."""

    devices: Sequence[Device]
    availability: Availability
    latency: Latency

    def __len__(self) -> int:
        return len(self.devices)


def training_time_s(device: Device, steps: int, batch: int, factor: float = 3.0) -> float:
    """FedScale's formula: a training step costs `factor` times the inference of its batch."""
    return factor * steps * batch * device.compute_ms_per_sample / 1000


def always_online(nodes: int) -> Availability:
    """Nobody ever leaves: the paper's setting without churn."""
    return Availability([np.array([[0.0, np.inf]])] * nodes, np.inf)
