"""Real peers on bad disks and at the end of their time: what they do, and what they say when they end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plexus.errors import PlexusError
from plexus.live.fleet.fleet import free_ports
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key, short
from plexus.live.identity.session_file import SESSION_FILE, found_session
from plexus.live.operator.control import ask
from plexus.live.state import STATE_FILE, newest_model, read_state
from plexus.live.transport.limits import Limits
from plexus.protocol.roster import key_of
from plexus.spec.experiment import parse_spec
from tests.live.disks import fill, small_disk

SPEC = """
name = "endings"
nodes = 2
hours = 1
evaluation = { every_rounds = 100 }
task = { name = "digits", hidden = 8 }

[protocol]
sample_size = 2
start_delay_s = 1.0
aggregation_timeout_s = 5.0
ack_timeout_s = 8.0
watchdog_s = 12.0
readvertise_s = 5.0

[traces]
availability = "none"

[session]
start_with = 1
"""
PATIENCE_S = 90.0

SLOW_DISK = """
import os, sys, time
from plexus.cli import main

fsync = os.fsync

def slow_fsync(descriptor):
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    if name.endswith("state.bin.new"):
        time.sleep(float(sys.argv[1]))
    fsync(descriptor)
    print(time.time(), name, flush=True)

os.fsync = slow_fsync
main(sys.argv[2:])
"""


class Session:
    """Two homes and, on demand, the processes in them."""

    def __init__(self, place: Path, spec: str = SPEC) -> None:
        self.place = place
        agreed = found_session(place / "authority", parse_spec(spec, "endings.toml").plain())
        self.authority = Authority.load(place / "authority")
        self.digest = agreed.digest
        self.ports = free_ports(2)
        self.homes = [place / "n0", place / "n1"]
        self.ids = ["", ""]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def admit(self, number: int, valid: timedelta = timedelta(days=1)) -> None:
        home = self.homes[number]
        home.mkdir(mode=0o700, exist_ok=True)
        public = create_key(home / KEY_FILE).public_key().public_bytes_raw()
        self.ids[number] = short(key_of(public))
        text = self.authority.invite(public, self.digest, valid)
        (home / CERTIFICATE_FILE).write_text(text)

    def start(self, number: int, program: tuple[str, ...] = ("-m", "plexus")) -> None:
        words = ["node", "start", self.place / "authority" / SESSION_FILE]
        words += ["--home", self.homes[number], "--data", number]
        words += ["--listen", f"127.0.0.1:{self.ports[number]}", "--task-dir", self.place]
        words += ["--log-level", "debug"]
        if number:
            words += ["--join", f"127.0.0.1:{self.ports[0]}"]
        with (self.place / f"err{number}").open("ab") as err, (self.place / f"out{number}").open("ab") as out:
            self.processes[number] = subprocess.Popen(
                [sys.executable, *program, *map(str, words)], stdout=out, stderr=err
            )

    def said(self, number: int) -> list[str]:
        return (self.place / f"err{number}").read_text().splitlines()

    def events(self, number: int, kind: str) -> list[dict[str, Any]]:
        *whole, _ = (self.place / f"err{number}").read_text().split("\n")
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == kind]

    def status(self, number: int) -> dict[str, Any]:
        try:
            return ask(self.homes[number], "status")
        except PlexusError:
            return {"phase": "not there"}

    def until(self, is_so: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < until, [self.said(number)[-5:] for number in self.processes]
            time.sleep(0.1)

    def end_of(self, number: int) -> tuple[int, str]:
        """Exit status and last words of a process that ends by itself."""
        status = self.processes[number].wait(timeout=PATIENCE_S)
        return status, self.said(number)[-1]


@contextmanager
def session(place: Path, spec: str = SPEC) -> Iterator[Session]:
    made = Session(place, spec)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_peer_that_is_started_again_shows_the_round_that_it_holds(tmp_path: Path) -> None:
    with session(tmp_path) as peers:
        for number in (0, 1):
            peers.admit(number)
            peers.start(number)
        state = peers.homes[1] / STATE_FILE
        peers.until(lambda: state.exists() and read_state(state).ordinal > 3)
        for process in peers.processes.values():
            process.kill()
            process.wait()
        held = newest_model(peers.homes[1])
        assert held is not None and held.round > held.ordinal
        peers.start(1)
        peers.until(lambda: peers.status(1)["phase"] == "joining")
        assert peers.status(1)["round"] == held.ordinal


@pytest.mark.slow
def test_a_peer_whose_disk_is_full_goes_offline_unheard_and_ends_with_2(tmp_path: Path) -> None:
    with small_disk(tmp_path / "n1", kilobytes=256) as disk, session(tmp_path) as peers:
        peers.admit(0)
        peers.admit(1)
        peers.start(1)
        peers.until(lambda: peers.status(1)["phase"] == "joining")
        fill(disk)
        peers.start(0)
        state = peers.homes[1] / "state.bin"
        assert peers.end_of(1) == (
            2,
            "plexus: the node's counter cannot be saved, so it went offline:"
            f" {state}: No space left on device",
        )
        assert peers.events(1, "stopped")[0]["writes_failed"] == 1
        peers.until(lambda: len(peers.events(0, "SampleDerived")) > 10)
        for event in peers.events(0, "SampleDerived"):
            assert peers.ids[1] not in event["sample"]


@pytest.mark.slow
def test_a_peer_whose_disk_fills_up_says_so_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "n1", kilobytes=512) as disk, session(tmp_path) as peers:
        for number in (0, 1):
            peers.admit(number)
            peers.start(number)
        peers.until(lambda: len(peers.events(0, "SampleDerived")) > 3)

        def unwritten() -> list[str]:
            return [each for each in peers.status(1)["problems"] if each.startswith("not on the disk: ")]

        assert unwritten() == []
        fill(disk)
        peers.until(lambda: bool(unwritten()))
        assert all(each.endswith("No space left on device") for each in unwritten())
        (disk / "filler").unlink()
        peers.until(lambda: unwritten() == [])


@pytest.mark.slow
def test_a_slow_disk_costs_no_link_and_nobody_hears_what_is_not_on_it(tmp_path: Path) -> None:
    with session(tmp_path) as peers:
        peers.admit(0)
        peers.admit(1)
        peers.start(0)
        slow_s = Limits().silent_after_s + 3
        peers.start(1, ("-c", SLOW_DISK, str(slow_s)))
        disk = "its state to be on the disk"
        peers.until(lambda: disk in [w["what"] for w in peers.status(1).get("waiting_for", [])])
        peers.until(lambda: any(peers.ids[1] in e["sample"] for e in peers.events(0, "SampleDerived")))
        [written_s, *_] = [
            float(line.split()[0])
            for line in (tmp_path / "out1").read_text().splitlines()
            if line.endswith("state.bin.new")
        ]
        samples = peers.events(0, "SampleDerived")
        heard_s = min(e["time"] for e in samples if peers.ids[1] in e["sample"])
        assert heard_s >= written_s - 0.001, "the log's time has milliseconds"
        assert any(e["time"] < written_s for e in samples), "the other one worked meanwhile"
        for number in (0, 1):
            assert len(peers.events(number, "link_up")) == 1
            assert peers.events(number, "link_down") == []
            assert peers.status(number)["peers"]["linked"] == 1
            assert peers.status(number)["counts"]["errors"] == 0


@pytest.mark.slow
def test_a_peer_can_be_stopped_while_its_worker_starts(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text("import time\n\ndef build(**_):\n    time.sleep(1000)\n")
    spec = SPEC.replace('task = { name = "digits", hidden = 8 }', 'task = { name = "sleepy:build" }')
    with session(tmp_path, spec) as peers:
        peers.admit(0)
        peers.start(0)
        peers.until(lambda: peers.status(0)["phase"] == "starting")
        peers.processes[0].send_signal(signal.SIGTERM)
        assert peers.processes[0].wait(timeout=PATIENCE_S) == 0


@pytest.mark.slow
def test_a_peer_whose_certificate_runs_out_says_so_and_ends_with_2(tmp_path: Path) -> None:
    with session(tmp_path) as peers:
        peers.admit(0, valid=timedelta(seconds=20))
        peers.start(0)
        status, words = peers.end_of(0)
        assert status == 2
        assert words == (
            f"plexus: {peers.homes[0] / CERTIFICATE_FILE}: the certificate has run out, so the node left"
            " the session; get a new one with `plexus session renew`"
        )
        assert len(peers.events(0, "certificate_runs_out")) == 1, "ahead of it"


@pytest.mark.slow
def test_a_peer_that_finds_itself_revoked_says_so_and_is_not_to_be_started_again(tmp_path: Path) -> None:
    with session(tmp_path) as peers:
        peers.admit(0)
        peers.start(0)
        peers.until(lambda: peers.status(0)["phase"] == "online")
        peers.authority.revoke(peers.authority.find(peers.ids[0]))
        shutil.copy(tmp_path / "authority" / "revoked.crl", peers.homes[0])
        words = f"plexus: {peers.homes[0] / CERTIFICATE_FILE}: this certificate has been revoked"
        for _ in range(2):
            assert peers.end_of(0) == (77, words)
            peers.start(0)
        assert peers.end_of(0) == (77, words)
    assert "RestartPreventExitStatus=77" in Path("examples/plexus-node.service").read_text().splitlines()
