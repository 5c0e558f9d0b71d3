"""What there is to learn with on this machine, for `plexus doctor`."""

from __future__ import annotations

import torch


def describe() -> tuple[str, list[str]]:
    """torch's version, and the name of every GPU it can use."""
    gpus = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            gpus.append(f"cuda:{number} {properties.name}, {properties.total_memory / 1e9:.0f} GB")
    return str(torch.__version__), gpus
