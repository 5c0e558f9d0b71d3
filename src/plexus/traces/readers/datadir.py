"""The directory of downloaded and imported data: `PLEXUS_DATA`, else where the platform keeps such."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

ENVIRONMENT = "PLEXUS_DATA"


def data_directory() -> Path:
    """Where data sets and traces are kept. It need not exist yet."""
    named = os.environ.get(ENVIRONMENT)
    return Path(named).expanduser() if named else platformdirs.user_data_path("plexus", appauthor=False)
