"""The network that far sites are tried in: what is sent arrives, unless a cable is pulled."""

from __future__ import annotations

import subprocess
import sys

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


def sent(net: Wan) -> str:
    """What host 2 hears from host 1."""
    return subprocess.check_output(inside(net, 2, SEND, net.address(1)), text=True, timeout=60).strip()


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_what_is_sent_arrives_unless_a_cable_is_pulled() -> None:
    with wan(("Berlin", "Sydney"), 1e6) as net:
        assert net.longest_round_trip_s > 0.1
        server = subprocess.Popen(inside(net, 1, SERVE), stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            assert sent(net) == "300000"
            net.cut(1)
            assert sent(net) == "TimeoutError"
            net.mend(1)
            assert sent(net) == "300000"
        finally:
            server.kill()
            server.communicate()
