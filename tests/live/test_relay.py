"""Links by way of another member: what they carry, who carries them, and what can go wrong there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plexus.live.transport.hub import UNREACHABLE
from plexus.live.transport.limits import Limits
from tests.live.ends import End
from tests.live.party import Party

HASTY = Limits(heartbeat_s=0.2, silent_after_s=0.8, redial_s=0.05, max_redial_s=0.1, connect_timeout_s=0.5)


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@asynccontextmanager
async def hidden(
    party: Party, relays: int = 1, size: int = 1000, limits: Limits | None = None, names: str = "ab"
) -> AsyncIterator[list[End]]:
    """Nodes that nobody can dial, with links to relays, which come last."""
    made = [End(each, size, limits) for each in party.admissions(names + "rst"[:relays])]
    leaves, hubs = made[: len(names)], made[len(names) :]
    for relay in hubs:
        await relay.open()
        relay.hub.advertised = b"\1" * 18
    for leaf in leaves:
        leaf.knows(*hubs)
        for relay in hubs:
            leaf.send(relay, b"hello")
            await leaf.until(lambda leaf=leaf, relay=relay: relay.is_linked(leaf))  # type: ignore[misc]
    for relay in hubs:
        await relay.until(lambda relay=relay: len(relay.messages) == len(leaves))  # type: ignore[misc]
        relay.messages.clear()
    try:
        yield made
        assert [failure for each in made for failure in each.failures] == []
    finally:
        for each in made:
            await each.hub.close("the test is over")


def test_two_that_nobody_can_dial_talk_by_way_of_a_third(party: Party) -> None:
    async def story() -> None:
        data = os.urandom(3_000_000)
        async with hidden(party, size=len(data)) as (a, b, r):
            a.send(b, b"one")
            await b.until(lambda: b.messages == [(a.key, b"one")])
            b.send(a, b"two")
            await a.until(lambda: a.messages == [(b.key, b"two")])
            assert a.hub.links[b.key].connection.relay == b.hub.links[a.key].connection.relay == r.key
            a.send_model(b, data, "there")
            b.send_model(a, data, "back")
            await a.until(lambda: a.fates and b.fates)
            assert (a.fates, b.fates) == ([("there", "sent")], [("back", "sent")])
            assert a.models == [(b.key, b"a model", data)]
            assert b.models == [(a.key, b"a model", data)]
            assert r.messages == r.models == []
            assert r.hub.relay.relayed_bytes > 2 * len(data)
            assert r.hub.relay.waiting_bytes == 0
            assert (len(a.hub.links), len(r.hub.links)) == (2, 2)

    run(story)
