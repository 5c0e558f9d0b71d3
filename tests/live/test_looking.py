"""Looking for others at the start: patiently, whatever is wrong with some of the places."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from plexus.live import phases
from plexus.live.fleet.fleet import free_ports
from plexus.live.operator.log import Log
from plexus.live.phases import Joining
from plexus.live.transport.addresses import Address
from plexus.protocol.view import View
from tests.live.ends import End
from tests.live.party import Party


def looking(end: End, *join: Address) -> Joining:
    """The part of a peer that joins, with a network and nothing else."""
    parts: Any = SimpleNamespace(hub=end.hub, roster=end.roster, log=Log(end.log))
    return Joining(parts, View.of(1), list(join), Random(1))


def nobody() -> Address:
    return "127.0.0.1", free_ports(1)[0]


def test_who_was_known_and_is_gone_is_dialled_with_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "ALONE_AFTER_S", 1.0)

    async def story() -> int:
        one, other = Party(tmp_path).admissions("ab")
        end = End(one)
        end.learn(other.key, nobody())
        await looking(end).reach(0)
        await end.hub.close("over")
        return end.hub.refused

    assert 1 <= asyncio.run(story()) <= 4


@pytest.mark.timeout(60)
def test_a_name_that_is_not_known_is_one_reason_and_the_others_are_reached(tmp_path: Path) -> None:
    """Not known to anybody: RFC 6761 says so of .invalid."""

    async def story() -> str:
        one, other = Party(tmp_path).admissions("ab")
        end, there = End(one), End(other)
        await there.open()
        await looking(end, ("nowhere.invalid", 7000), nobody(), ("localhost", there.address[1])).reach(0)
        assert end.is_linked(there)
        for each in (end, there):
            await each.hub.close("over")
        return end.log.getvalue()

    assert (
        '"remote":"nowhere.invalid:7000","dialled":true,"reason":"host nowhere.invalid cannot be found'
        in (asyncio.run(story()))
    )


def test_a_name_that_comes_to_be_known_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a machine whose entry is made when it starts. It names both: each address is tried."""
    party, asked = Party(tmp_path), list[str]()

    async def story() -> None:
        one, other = party.admissions("ab")
        end, there = End(one), End(other)
        await there.open()

        def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
            asked.append(host)
            if len(asked) < 3:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return [(0, 0, 0, "", (each, port)) for each in ("127.0.0.9", "127.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        seeker = looking(end, ("a.name", there.address[1]))
        await seeker.reach(0)
        assert end.is_linked(there)
        assert asked == ["a.name"] * 3
        for each in (end, there):
            await each.hub.close("over")

    asyncio.run(story())
