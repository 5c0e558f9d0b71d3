"""Hosts as network namespaces: two pairs, each on its own switch, and a cable between the switches."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from plexus.live.fleet.fleet import Fleet

PORT = 7000
HALVES = ((1, 2), (3, 4))


def why_not() -> str | None:
    """Why this machine cannot make network namespaces, if it cannot."""
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    probe = f"plx{os.getpid()}p"
    if (made := ip("netns", "add", probe, check=False)).returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    try:
        for words in (("link", "add", "br0", "type", "bridge"), ("link", "set", "lo", "up")):
            if (made := ip("-n", probe, *words, check=False)).returncode:
                return f"no bridges in network namespaces: {made.stderr.strip()}"
    finally:
        ip("netns", "del", probe, check=False)
    return None


class Network:
    """Four hosts, 10.77.0.1 to 10.77.0.4."""

    def __init__(self) -> None:
        self._prefix = f"plx{os.getpid()}"
        self._switch = f"{self._prefix}s"

    def host(self, number: int) -> str:
        """The name of a host's namespace."""
        return f"{self._prefix}h{number}"

    def address(self, number: int) -> str:
        return f"10.77.0.{number}"

    def partition(self) -> None:
        """Pull the cable between the two halves. Nobody is told."""
        ip("-n", self._switch, "link", "set", "cable0", "down")

    def heal(self) -> None:
        ip("-n", self._switch, "link", "set", "cable0", "up")

    def build(self) -> None:
        ip("netns", "add", self._switch)
        for half, hosts in enumerate(HALVES):
            self._in_switch("add", f"br{half}", "type", "bridge")
            self._in_switch("set", f"br{half}", "up")
            for number in hosts:
                self._add_host(number, half)
        self._in_switch("add", "cable0", "type", "veth", "peer", "name", "cable1")
        for half in (0, 1):
            self._in_switch("set", f"cable{half}", "master", f"br{half}")
            self._in_switch("set", f"cable{half}", "up")

    def _add_host(self, number: int, half: int) -> None:
        host, port = self.host(number), f"port{number}"
        ip("netns", "add", host)
        self._in_switch("add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        self._in_switch("set", port, "master", f"br{half}")
        self._in_switch("set", port, "up")
        ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        ip("-n", host, "link", "set", "eth0", "up")
        ip("-n", host, "link", "set", "lo", "up")

    def _in_switch(self, *words: str) -> None:
        ip("-n", self._switch, "link", *words)

    def remove(self) -> None:
        for name in (self._switch, *(self.host(n) for half in HALVES for n in half)):
            ip("netns", "del", name, check=False)


@contextmanager
def network() -> Iterator[Network]:
    """A network that is gone afterwards."""
    net = Network()
    try:
        net.build()
        yield net
    finally:
        net.remove()


class Hosts(Protocol):
    """Where members can live, numbered from 1."""

    def host(self, number: int) -> str: ...

    def address(self, number: int) -> str: ...


def move_into(net: Hosts, fleet: Fleet, *more: str, joins: int | None = None) -> None:
    """Let every member live on its own host. They begin with `joins` others, those that come after them, or
    with all."""
    count = len(fleet.members)
    for member in fleet.members:
        words = member.command[: member.command.index("--home") + 4]
        words += ["--fork-server", str(fleet.out / "forkserver.sock"), "--listen", f"0.0.0.0:{PORT}"]
        others = [(member.number + step) % count + 1 for step in range(1, count)]
        for other in others[:joins]:
            words += ["--join", f"{net.address(other)}:{PORT}"]
        member.command = ["ip", "netns", "exec", net.host(member.number + 1), *words, *more]


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)
