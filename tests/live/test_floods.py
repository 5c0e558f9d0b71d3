"""Members that send more than they should: whatever they send, the others get their turn."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plexus.live.transport.addresses import Address
from plexus.live.transport.frames import Kind, frame
from plexus.live.transport.limits import Limits
from tests.live.ends import End
from tests.live.party import Party, greeted

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture
def party(tmp_path: Path) -> Party:
    return Party(tmp_path)


@pytest.mark.parametrize("payload", [b"", b"x"])
def test_a_flood_of_small_messages_does_not_keep_the_loop_from_turning(party: Party, payload: bytes) -> None:
    count = 2000

    class Slow(End):
        def message(self, src: bytes, payload: bytes) -> None:
            super().message(src, payload)
            time.sleep(0.0005)  # what a node does with a message takes its time

    async def story() -> None:
        a = Slow(party.admission("a"))
        await a.open()
        member = await asyncio.to_thread(greeted, party, party.home("b"), a.address)
        # One record of TLS, so all of it is there at once.
        await asyncio.to_thread(member.sendall, count * frame(Kind.MESSAGE, payload))
        seen = set()
        while len(a.messages) < count:
            seen.add(len(a.messages))
            await asyncio.sleep(0)
        assert seen - {0}, "nothing else happened until the last message was handled"
        assert len(a.hub.links) == 1
        member.close()
        await a.hub.close("the test is over")

    asyncio.run(story())


class OneWay:
    """Carries what one client sends to `target`, and nothing back any more once it is deaf."""

    def __init__(self, target: Address) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._target = target
        self.is_deaf = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        near, _ = self._server.accept()
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        far.connect(self._target)
        threading.Thread(target=self._back, args=(far, near), daemon=True).start()
        with near, far, suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while not self.is_deaf and (data := far.recv(65536)):
                near.sendall(data)

    def close(self) -> None:
        self._server.close()


@contextmanager
def openssl(port: int, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """OpenSSL's own client, which says what is written to its standard input."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}"]
    command += ["-cert", str(home / "node.crt"), "-key", str(home / "node.key")]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet) as client:
        try:
            yield client
        finally:
            client.kill()


@needs_openssl
def test_who_asks_for_new_keys_and_never_reads_the_answer_is_cut_off(party: Party) -> None:
    """The answers are TLS's own: they never waited for the other side to read."""

    async def story() -> None:
        a = End(party.admission("a"), limits=Limits(max_unsent_bytes=1000, handshake_timeout_s=60))
        await a.open()
        # Whom the network takes little from soon has something unsent.
        a.hub._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        relay = OneWay(a.address)
        with openssl(relay.port, party.home("b")) as client:
            await a.until(lambda: len(a.hub.handshakes.under_way) == 1)
            await asyncio.sleep(0.5)
            relay.is_deaf = True
            assert client.stdin is not None
            async with asyncio.timeout(20):
                while len(a.hub.handshakes.under_way):
                    client.stdin.write(b"K\n")  # OpenSSL looks at the first letter of what it reads
                    client.stdin.flush()
                    await asyncio.sleep(0.001)
        relay.close()
        await a.hub.close("the test is over")

    asyncio.run(story())
