"""The directory of downloaded and imported data: `PLEXUS_DATA`, else where the platform keeps such."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ENVIRONMENT = "PLEXUS_DATA"


def data_directory() -> Path:
    """Where data sets and traces are kept. It need not exist yet."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "plexus"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plexus"
    share = os.environ.get("XDG_DATA_HOME")
    return (Path(share) if share else Path.home() / ".local" / "share") / "plexus"
