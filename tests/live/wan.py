"""Sites that are far apart: a network namespace for each, and between them a wide area network.

Every host has a tunnel device whose packets come here: they pass the sender's up link, the distance and
the receiver's down link, or are dropped where a queue is full or a cable pulled. TCP and TLS are those of
the kernel and of the peers; nobody is told what happens to the packets.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import select
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from plexus.traces.synthetic import generate_latency
from plexus.traces.world import world_cities
from tests.live import netns
from tests.live.netns import ip

TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU_BYTES = 9000
"""Jumbo frames, so that one core forwards for all."""
QUEUE_S = 0.2
"""What waits for longer at the end of a link is dropped."""
SHARE = 64
"""Packets of one host that are read at a time."""
DESTINATION = 19
"""Where the last byte of the receiver is in a packet of IPv4."""
PROTOCOL, TCP, FLAGS, SYN, SYN_OR_ACK = 9, 6, 13, 0x02, 0x12
"""By which a packet is known that opens a connection: there is no acknowledgement in it."""


def why_not() -> str | None:
    """Why there can be no such network on this machine, if it cannot."""
    if not os.access(TUN, os.R_OK | os.W_OK):
        return f"there is no {TUN} to be used"
    return netns.why_not()


class Line:
    """One direction of a host's access: packets leave it one after the other."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def pass_through(self, count: int, now: float) -> float | None:
        """When the last byte will have passed; None if the queue is full."""
        begins = max(now, self._free_at)
        if begins - now > QUEUE_S:
            return None
        self._free_at = begins + count / self._bytes_per_s
        return self._free_at


class Wan:
    """Hosts 1, 2, …, each in its city: 10.78.0.1, 10.78.0.2, … Those after the first `reachable` are behind
    NAT: nobody can open a connection to them."""

    def __init__(self, cities: Sequence[str], bytes_per_s: float, reachable: int) -> None:
        places = {city.name: city for city in world_cities()}
        self.cities = cities
        self._delay_s = generate_latency([places[name] for name in cities], seed=1)
        self._up = [Line(bytes_per_s) for _ in cities]
        self._down = [Line(bytes_per_s) for _ in cities]
        self._cut = [False] * len(cities)
        self._reachable = reachable
        self._prefix = f"plx{os.getpid()}"
        self._ends: list[int] = []
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._counter = itertools.count()
        self._on_the_way: list[tuple[float, int, int, bool, bytes]] = []

    @property
    def longest_round_trip_s(self) -> float:
        return float((self._delay_s + self._delay_s.T).max())

    def host(self, number: int) -> str:
        """The name of a host's namespace."""
        return f"{self._prefix}w{number}"

    def address(self, number: int) -> str:
        return f"10.78.0.{number}"

    def cut(self, number: int) -> None:
        """Pull a host's cable. Nobody is told."""
        self._cut[number - 1] = True

    def mend(self, number: int) -> None:
        self._cut[number - 1] = False

    def build(self) -> None:
        for number in range(1, len(self.cities) + 1):
            self._add_host(number)
        self._thread.start()

    def _add_host(self, number: int) -> None:
        host = self.host(number)
        end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        self._ends.append(end)
        fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", host.encode(), _IFF_TUN | _IFF_NO_PI))
        ip("netns", "add", host)
        ip("link", "set", host, "netns", host)
        ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", host)
        ip("-n", host, "link", "set", host, "mtu", str(MTU_BYTES), "up")
        ip("-n", host, "link", "set", "lo", "up")

    def remove(self) -> None:
        if self._thread.is_alive():
            os.write(self._stopped, b"x")
            self._thread.join()
        for end in (self._stop, self._stopped, *self._ends):
            os.close(end)
        for number in range(1, len(self.cities) + 1):
            ip("netns", "del", self.host(number), check=False)

    def _forward(self) -> None:
        poll = select.epoll()
        for end in (self._stop, *self._ends):
            poll.register(end, select.EPOLLIN)
        hosts = {end: at for at, end in enumerate(self._ends)}
        while True:
            due = self._on_the_way[0][0] - time.monotonic() if self._on_the_way else None
            for end, _ in poll.poll(None if due is None else max(0.0, due)):
                if end == self._stop:
                    return
                self._take(end, hosts[end])
            self._deliver()

    def _take(self, end: int, source: int) -> None:
        for _ in range(SHARE):
            try:
                packet = os.read(end, MTU_BYTES)
            except BlockingIOError:
                return
            to = packet[DESTINATION] - 1
            if packet[0] >> 4 != 4 or not 0 <= to < len(self._ends) or self._cut[source]:
                continue
            if to >= self._reachable and _opens_a_connection(packet):
                continue
            sent_at = self._up[source].pass_through(len(packet), time.monotonic())
            if sent_at is not None:
                self._put(sent_at + self._delay_s[source, to], to, False, packet)

    def _put(self, at: float, to: int, has_passed: bool, packet: bytes) -> None:
        heapq.heappush(self._on_the_way, (at, next(self._counter), to, has_passed, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._on_the_way and self._on_the_way[0][0] <= now:
            at, _, to, has_passed, packet = heapq.heappop(self._on_the_way)
            if self._cut[to]:
                continue
            if has_passed:
                with suppress(OSError):  # its namespace is being removed
                    os.write(self._ends[to], packet)
            elif (passed := self._down[to].pass_through(len(packet), at)) is not None:
                self._put(passed, to, True, packet)


def _opens_a_connection(packet: bytes) -> bool:
    flags_at = 4 * (packet[0] & 15) + FLAGS
    return packet[PROTOCOL] == TCP and packet[flags_at] & SYN_OR_ACK == SYN


@contextmanager
def wan(cities: Sequence[str], bytes_per_s: float, reachable: int | None = None) -> Iterator[Wan]:
    """A network that is gone afterwards; all its hosts are `reachable`, or some."""
    net = Wan(cities, bytes_per_s, len(cities) if reachable is None else reachable)
    try:
        net.build()
        yield net
    finally:
        net.remove()
