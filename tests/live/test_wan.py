"""The network that far sites are tried in: what is sent arrives, unless a cable is pulled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.live.wan import Wan, wan, why_not

SERVE = """
import socket
with socket.create_server(("0.0.0.0", 7000)) as server:
    print("listening", flush=True)
    while True:
        with server.accept()[0] as client:
            got = 0
            while data := client.recv(65536):
                got += len(data)
            client.sendall(b"%d" % got)
"""
SEND = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=2) as server:
        server.sendall(bytes(300_000))
        server.shutdown(socket.SHUT_WR)
        print(server.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


def inside(net: Wan, number: int, program: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", net.host(number), sys.executable, "-c", program, *words]


def sent(net: Wan, to: int = 1, by: int = 2) -> str:
    """What one host hears from the other."""
    return subprocess.check_output(inside(net, by, SEND, net.address(to)), text=True, timeout=60).strip()


@contextmanager
def listening(net: Wan, number: int) -> Iterator[None]:
    """A server on a host."""
    server = subprocess.Popen(inside(net, number, SERVE), stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listening\n"
        yield
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_what_is_sent_arrives_unless_a_cable_is_pulled() -> None:
    with wan(("Berlin", "Sydney"), 1e6) as net, listening(net, 1):
        assert net.longest_round_trip_s > 0.1
        assert sent(net) == "300000"
        net.cut(1)
        assert sent(net) == "TimeoutError"
        net.mend(1)
        assert sent(net) == "300000"


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_who_is_behind_nat_reaches_others_and_is_not_reached() -> None:
    with wan(("Berlin", "Paris"), 1e6, reachable=1) as net, listening(net, 1), listening(net, 2):
        assert sent(net, to=1, by=2) == "300000"
        assert sent(net, to=2, by=1) == "TimeoutError"
