"""What a service manager hears of a peer, over its real kind of socket."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.live.operator.control import notifying
from plexus.live.operator.log import Log
from plexus.spec.experiment import parse_spec

SPEC = """
name = "served"
nodes = 1
hours = 1
task = { name = "digits" }
traces = { availability = "none" }
"""


@pytest.fixture(params=["file", "abstract"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket that a service manager listens at."""
    name = str(tmp_path / "notify")
    if request.param == "abstract":
        name = f"@plexus-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0"))
        sock.settimeout(60)
        yield sock


@pytest.mark.slow
def test_a_peer_is_ready_alive_and_stopping(manager: socket.socket, tmp_path: Path) -> None:
    def hear() -> str:
        return manager.recv(1000).decode()

    async def story() -> None:
        fleet = Fleet(parse_spec(SPEC, "served.toml"), tmp_path / "fleet", world=None)
        await fleet.prepare()
        [peer] = fleet.members
        try:
            await peer.start()
            heard = [await asyncio.to_thread(hear) for _ in range(4)]
            assert heard == ["READY=1", *["WATCHDOG=1"] * 3]
            assert peer.process is not None
            peer.process.send_signal(signal.SIGTERM)
            while (last := await asyncio.to_thread(hear)) == "WATCHDOG=1":
                pass
            assert last == "STOPPING=1"
            assert await peer.process.wait() == 0
        finally:
            await fleet.close()

    asyncio.run(story())


def told(manager: socket.socket, until: int) -> list[str]:
    """What is heard of a stretch of running that ends with the message number `until`."""
    heard = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        manager.setblocking(False)
        with notifying(Log()):
            for _ in range(until):
                heard.append(await loop.sock_recv(manager, 1000))
        heard.append(await loop.sock_recv(manager, 1000))

    asyncio.run(story())
    return [each.decode() for each in heard]


def test_a_sign_of_life_comes_from_the_event_loop(manager: socket.socket) -> None:
    assert told(manager, 3) == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]


def test_signs_of_life_are_given_only_if_asked_for(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))  # of somebody else
    assert told(manager, 1) == ["READY=1", "STOPPING=1"]
    monkeypatch.delenv("WATCHDOG_PID")
    monkeypatch.delenv("WATCHDOG_USEC")
    assert told(manager, 1) == ["READY=1", "STOPPING=1"]


def test_a_peer_that_had_no_descriptors_for_a_moment_gives_signs_of_life_again(
    manager: socket.socket,
) -> None:
    stream, limits = StringIO(), resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> None:
        manager.setblocking(False)
        with notifying(Log(stream)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            try:
                while "Too many open files" not in stream.getvalue():
                    await asyncio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            loop = asyncio.get_running_loop()
            heard = [await loop.sock_recv(manager, 1000) for _ in range(3)]
            assert heard == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_service_manager_that_is_gone_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    stream = StringIO()

    async def story() -> None:
        with notifying(Log(stream)):
            pass

    asyncio.run(story())
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    assert [line["state"] for line in lines] == ["READY=1", "STOPPING=1"]
    assert lines[0]["reason"] == f"{tmp_path / 'nobody'}: No such file or directory"
