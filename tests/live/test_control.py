"""The socket for the operator and the page for Prometheus: clients that misbehave cost nothing for long."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.live.operator import control
from plexus.live.operator.control import ask, serve_control, serve_metrics, socket_path


def large() -> dict[str, object]:
    return {"counts": {}, "text": "x" * 30_000_000}


async def until_alone() -> None:
    """No connection is served any more."""
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("request_", [b"", b"GET /status HTTP/1.1\r\n\r\n", b"x" * 10_000])
def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch, request_: bytes) -> None:
    monkeypatch.setattr(control, "REQUEST_TIMEOUT_S", 0.3)

    async def story() -> None:
        server = await serve_metrics(("127.0.0.1", 0), large)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request_)
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) > 1 or request_.startswith(b"x")
        await until_alone()
        writer.transport.abort()
        server.close()

    asyncio.run(story())


def test_an_answer_arrives_whole(tmp_path: Path) -> None:
    async def story() -> None:
        server = await serve_control(tmp_path, large, lambda: None)
        answer = await asyncio.to_thread(ask, tmp_path, "status")
        assert answer == large()
        await until_alone()
        server.close()

    asyncio.run(story())


def test_a_peer_that_does_not_answer_is_not_called_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped, or its machine is swapping: the connection stands, and nothing comes."""
    monkeypatch.setattr(control, "REQUEST_TIMEOUT_S", 0.3)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_path(tmp_path)))
        silent.listen()
        with pytest.raises(PlexusError, match="a peer is running here, but has not answered for"):
            ask(tmp_path, "status")
    with pytest.raises(PlexusError, match="no peer is running here"):
        ask(tmp_path, "status")


def test_where_metrics_cannot_be_served_is_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError("could not bind on any address")  # of later Pythons: without a number

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(PlexusError, match=r"^--metrics \[::1\]:7000: could not bind on any address$"):
        asyncio.run(serve_metrics(("::1", 7000), large))


def test_a_peer_that_ends_before_it_answers_is_gone(tmp_path: Path) -> None:
    def end(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        connection.recv(100)
        connection.close()

    with socket.socket(socket.AF_UNIX) as ending, ThreadPoolExecutor(1) as pool:
        ending.bind(str(socket_path(tmp_path)))
        ending.listen()
        ended = pool.submit(end, ending)
        with pytest.raises(PlexusError, match="no peer is running here"):
            ask(tmp_path, "status")
        ended.result()
