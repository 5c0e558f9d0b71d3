"""The event loop of a peer: uvloop where it is installed, else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

from plexus import lazy

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a peer to its end."""
    factory = lazy.load("uvloop:new_event_loop") if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What comes of `work`; if `stop` is set first, the work is cancelled and nothing comes of it."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not stop.is_set():
        return working.result()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    return None
