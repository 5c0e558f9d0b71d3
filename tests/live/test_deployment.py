"""docs/deployment.md from top to bottom, as its reader would: machines are network namespaces, with names.

Every command that the page shows is taken from the page. What is different: three machines instead of
twenty, fewer nodes and hours in the rehearsals, and `ssh` and `scp` that know no other network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, SHELL, Block, blocks, inline
from tests.docs.shrink import shrunk
from tests.live.netns import Network, network, why_not

PAGE = ROOT / "docs" / "deployment.md"
MACHINES = 3
BERLIN, FIRST = 2, 1
"""The machine that is invited by name, and the one that the others join."""
PATIENCE_S = 120.0
SSH = """#!/bin/sh
[ "$1" = -n ] && shift
machine=$1; shift
cd {place}/$machine && HOME=$PWD exec ip netns exec {prefix}h$((${{machine#peer}} + 1)) "$@"
"""
SCP = """#!/bin/sh
cp "$1" {place}/${{2%%:*}}/${{2#*:}}
"""
ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"


class Reader:
    """Somebody who follows the page, with a machine for the authority and some for peers."""

    def __init__(self, place: Path, net: Network) -> None:
        self.place, self.net = place, net
        self._peers: dict[int, subprocess.Popen[bytes]] = {}
        self._shown = iter([block for block in blocks(PAGE) if block.language in (*SHELL, "text")])
        for name, text in (("ssh", SSH), ("scp", SCP), ("plexus", "")):
            program = place / "bin" / name
            program.parent.mkdir(exist_ok=True)
            plexus = f'#!/bin/sh\nexec {sys.executable} -m plexus "$@"\n'
            prefix = net.host(0).removesuffix("h0")
            program.write_text(text.format(place=place, prefix=prefix) if text else plexus)
            program.chmod(0o755)
        for number in range(MACHINES):
            self.machine(number).mkdir()

    def machine(self, number: int) -> Path:
        """What is on the disk of one."""
        return self.place / f"peer{number}"

    def next_block(self) -> Block:
        return next(self._shown)

    @property
    def has_read_all(self) -> bool:
        return next(self._shown, None) is None

    def run(self, script: str, machine: int | None = None, status: int = 0, folder: str = "") -> str:
        """Commands on the authority's machine, or on one of the others."""
        done = subprocess.run(
            self._on(machine, ["bash", "-e", "-c", script]),
            cwd=(self.place if machine is None else self.machine(machine)) / folder,
            env=self._environment(machine), capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == status, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, number: int, command: str) -> None:
        """A peer, in the folder of its session file."""
        home = self.machine(number) / "plexus"
        with (home / "log.jsonl").open("ab") as log:
            self._peers[number] = subprocess.Popen(
                self._on(number, ["bash", "-c", f"exec {command}"]),
                cwd=home, env=self._environment(number), stderr=log,
            )  # fmt: skip

    def wait_for_end(self, number: int) -> int:
        return self._peers[number].wait(timeout=PATIENCE_S)

    def kill_all(self) -> None:
        for peer in self._peers.values():
            peer.kill()
            peer.wait()

    def said(self, number: int, event: str) -> list[dict[str, Any]]:
        lines = (self.machine(number) / "plexus" / "log.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in told if line["event"] == event]

    def rounds(self) -> int:
        done = [self.said(number, "AggregationCompleted") for number in self._peers]
        return max((line["round"] for lines in done for line in lines), default=0)

    def until(self, is_so: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            logs = [self.machine(number) / "plexus" / "log.jsonl" for number in self._peers]
            assert time.monotonic() < until, [log.read_text()[-1500:] for log in logs]
            time.sleep(0.2)

    def goes_on(self) -> None:
        before = self.rounds()
        self.until(lambda: self.rounds() > before + 2)

    def _on(self, machine: int | None, command: list[str]) -> list[str]:
        return command if machine is None else ["ip", "netns", "exec", self.net.host(machine + 1), *command]

    def _environment(self, machine: int | None) -> dict[str, str]:
        home = {} if machine is None else {"HOME": str(self.machine(machine))}
        return {**os.environ, **home, "PATH": f"{self.place / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def names(net: Network) -> Iterator[None]:
    """Machines know each other by name: `ip netns exec` puts what is in /etc/netns in the place of /etc."""
    known = "127.0.0.1 localhost\n" + "".join(
        f"{net.address(number + 1)} peer{number} peer{number}.example.org\n" for number in range(MACHINES)
    )
    folders = [Path("/etc/netns") / net.host(number + 1) for number in range(MACHINES)]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(known)
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_the_page_is_followed_from_top_to_bottom(tmp_path_factory: pytest.TempPathFactory) -> None:
    tmp_path = tmp_path_factory.mktemp("page")  # short: a fleet has sockets in it
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with network() as net, names(net):
        reader = Reader(tmp_path, net)
        try:
            _rehearse(reader)
            _found_and_invite(reader)
            start = _start(reader)
            _operate(reader, start)
            _look_after(reader)
        finally:
            reader.kill_all()
    assert reader.has_read_all


def _rehearse(reader: Reader) -> None:
    for _ in range(2):
        for command in reader.next_block().commands:
            reader.run(shrunk(command, {}))
    assert (reader.place / "runs" / "fleet-digits-session" / "result.json").exists()
    assert "--shape" in reader.next_block().text  # fleets with shaping and churn are tested by themselves
    compared = reader.run(reader.next_block().text)
    [(same, measured)] = re.findall(r"in (\d+) of (\d+) it is the same", " ".join(compared.split()))
    assert same == measured and int(measured) > 10


def _found_and_invite(reader: Reader) -> None:
    [init] = reader.next_block().commands
    reader.run(f"{init} --set nodes={MACHINES}")
    by_hand = reader.next_block().text
    [key_command, invite] = re.findall(r"\$ +(plexus .+)", by_hand)
    key = reader.run(key_command, BERLIN).strip()
    reader.run(invite.replace("ed25519:5f0c…", key))
    assert (reader.place / "peer7.crt").exists()
    by_ssh = reader.next_block().text
    assert "seq 0 19" in by_ssh
    reader.run(by_ssh.replace("seq 0 19", f"seq 0 {MACHINES - 1}"))
    listed = reader.run(_inline("plexus session list authority"))
    assert listed.count(" admitted ") == MACHINES and "\nberlin " in listed


def _start(reader: Reader) -> Callable[[int], None]:
    [command] = reader.next_block().commands

    def start(number: int) -> None:
        words = command.replace("--data 7", f"--data {number}")
        if number == FIRST:  # it has nobody to join
            words = words.partition(" --join")[0] + " --metrics 127.0.0.1:9464"
        reader.start(number, words)

    for number in (FIRST, *(other for other in range(MACHINES) if other != FIRST)):
        start(number)
    reader.until(lambda: all(reader.said(number, "online") for number in range(MACHINES)))
    reader.goes_on()
    return start


def _operate(reader: Reader, start: Callable[[int], None]) -> None:
    home = reader.machine(BERLIN) / "plexus"
    reader.run(_inline("plexus session renew authority berlin --out node.crt"))
    shutil.copy(reader.place / "node.crt", home)
    reader.until(lambda: reader.said(BERLIN, "certificate_renewed"))
    # Back up and restore, which is an upgrade, too: stopped, replaced, started.
    reader.run("plexus node stop --home ~/plexus", BERLIN)
    assert reader.wait_for_end(BERLIN) == 0
    shutil.copytree(home, reader.place / "backup")
    shutil.rmtree(home)
    shutil.copytree(reader.place / "backup", home)
    start(BERLIN)
    reader.until(lambda: len(reader.said(BERLIN, "online")) == 2)
    reader.goes_on()
    # A power cut.
    reader.kill_all()
    for number in range(MACHINES):
        start(number)
    reader.goes_on()
    # Out, in again, and out for good.
    _out(reader, "remove", "removed")
    reader.run("plexus session renew authority berlin --out node.crt")
    shutil.copy(reader.place / "node.crt", home)
    before = len(reader.said(BERLIN, "online"))
    start(BERLIN)
    reader.until(lambda: len(reader.said(BERLIN, "online")) > before)
    _out(reader, "revoke", "revoked")
    reader.goes_on()


def _out(reader: Reader, verb: str, state: str) -> None:
    reader.run(_inline(f"plexus session {verb} authority berlin"))
    assert f" {state} " in reader.run("plexus session list authority")
    shutil.copy(reader.place / "authority" / "revoked.crl", reader.machine(0) / "plexus")
    assert reader.wait_for_end(BERLIN) == 77
    last_words = (reader.machine(BERLIN) / "plexus" / "log.jsonl").read_text().splitlines()[-1]
    assert state in last_words


def _look_after(reader: Reader) -> None:
    look, standing, stop, export = reader.next_block().commands
    assert "online" in reader.run(look, FIRST)
    assert "session digits-session: round" in reader.run(standing, FIRST, status=1)
    for path in ("healthz", "readyz", "metrics", "status"):
        asked = f"{sys.executable} -c '{ASK}' http://127.0.0.1:9464/{path}"
        assert reader.run(asked, FIRST) == "200\n"
    assert reader.run("plexus session suspects ~/plexus", FIRST)
    assert "has left the session and ended" in reader.run(stop, FIRST)
    assert reader.wait_for_end(FIRST) == 0
    assert "is in model.safetensors" in reader.run(export, FIRST)
    assert (reader.machine(FIRST) / "model.safetensors").stat().st_size > 10_000


def _inline(command: str) -> str:
    """It is on the page."""
    assert command in inline(PAGE)
    return command
