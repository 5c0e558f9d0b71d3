"""Looking for others at the start: patiently, whatever is wrong with some of the places."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from plexus.live import joining
from plexus.live.fleet.fleet import free_ports
from plexus.live.joining import Joining
from plexus.live.operator.log import Log
from plexus.live.transport.addresses import Address
from plexus.protocol.view import View
from tests.live.ends import End
from tests.live.party import Party


def looking(end: End, *join: Address) -> Joining:
    """The part of a peer that joins, with a network and nothing else."""
    parts: Any = SimpleNamespace(hub=end.hub, roster=end.roster, log=Log(StringIO()))
    return Joining(parts, View.of(1), list(join), Random(1))


def nobody() -> Address:
    return "127.0.0.1", free_ports(1)[0]


def test_who_was_known_and_is_gone_is_dialled_with_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "ALONE_AFTER_S", 1.0)

    async def story() -> int:
        one, other = Party(tmp_path).admissions("ab")
        end = End(one)
        end.learn(other.key, nobody())
        await looking(end).reach(0)
        await end.hub.close("over")
        return end.hub.refused

    assert 1 <= asyncio.run(story()) <= 4
