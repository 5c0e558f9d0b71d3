"""Processes of a fleet: who is told to end does not die by itself."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from plexus.errors import TaskError
from plexus.live.fleet.members import ForkServer, Member
from plexus.live.worker.client import SetUp


def test_who_looks_while_a_member_is_killed_sees_no_death(tmp_path: Path) -> None:
    async def story() -> list[int]:
        member = Member(0, tmp_path, "0", ["sleep", "60"])
        await member.start()

        async def look() -> None:
            while member.process is not None:
                assert not member.notice_death()
                await asyncio.sleep(0)

        async with asyncio.timeout(20):
            await asyncio.gather(member.end(signal.SIGKILL), look())
        return member.unexpected

    assert asyncio.run(story()) == []


def test_who_dies_by_itself_is_noticed_once(tmp_path: Path) -> None:
    async def story() -> tuple[bool, bool, list[int]]:
        member = Member(0, tmp_path, "0", ["false"])
        await member.start()
        assert member.process is not None
        await member.process.wait()
        return member.notice_death(), member.notice_death(), member.unexpected

    assert asyncio.run(story()) == (True, False, [1])


def test_who_asks_for_a_worker_when_the_fork_server_is_gone_hears_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "forkserver.log").write_text("Out of memory\n")
    with pytest.raises(TaskError, match=r"^the training worker died as it tried its task: Out of memory$"):
        asyncio.run(ForkServer(tmp_path).ask(SetUp("", "0")))
