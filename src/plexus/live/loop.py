"""The event loop of a peer: uvloop where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

from plexus import lazy


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a peer to its end."""
    factory = lazy.load("uvloop:new_event_loop") if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
