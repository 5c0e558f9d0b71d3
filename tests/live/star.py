"""Hosts on one switch of which the first ones reach all others, and those nobody but the first ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.live.netns import Network


class Star(Network):
    """10.77.0.1 and so on."""

    def __init__(self, hosts: int, reachable: int) -> None:
        super().__init__()
        self.hosts = range(1, hosts + 1)
        self._reachable = reachable

    def build(self) -> None:
        _run("ip", "netns", "add", self._switch)
        self._in_switch("add", "br0", "type", "bridge")
        self._in_switch("set", "br0", "up")
        for number in self.hosts:
            self._add_host(number, 0)
            if number > self._reachable:  # nor do such ports of a switch hear each other
                self._in_switch("set", f"port{number}", "type", "bridge_slave", "isolated", "on")

    def shape(self, number: int, megabits_per_s: float) -> None:
        """Give a host a link that is so fast each way."""
        rate = ["rate", f"{megabits_per_s:g}mbit", "burst", "32k", "latency", "100ms"]
        for space, device in ((self.host(number), "eth0"), (self._switch, f"port{number}")):
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def remove(self) -> None:
        for name in (self._switch, *map(self.host, self.hosts)):
            _run("ip", "netns", "del", name, check=False)


@contextmanager
def star(hosts: int, reachable: int) -> Iterator[Star]:
    """A network that is gone afterwards."""
    net = Star(hosts, reachable)
    try:
        net.build()
        yield net
    finally:
        net.remove()


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=True)
