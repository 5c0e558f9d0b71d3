"""What this machine gives to this process, and what the process has cost so far."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def usable_cores() -> int:
    """How many processors this process may use: in a container or a batch job fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_s() -> float:
    """The processor time that this process has taken, in seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """The most memory this process ever held, in megabytes of 10⁶ bytes."""
    if _STATUS.exists():
        # On Linux ru_maxrss survives exec: a child of a large process would report its parent's size.
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
