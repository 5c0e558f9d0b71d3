"""A session from the command line, as the docs tell it: found, invite, run, look, stop, export."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from plexus.cli import main
from plexus.cli.session import read_session_file
from plexus.errors import RevokedError
from plexus.learn.saved import load_model
from plexus.learn.tasks import create_task
from plexus.live.fleet.fleet import free_ports
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key, make_home
from plexus.live.state import STATE_FILE, State, encode_state, read_state
from plexus.runs.model_files import metadata_of

SPEC = """
name = "two"
nodes = 2
hours = 0.05
evaluation = { every_rounds = 2 }
task = { name = "digits", hidden = 8 }
traces = { availability = "none" }

[protocol]
sample_size = 2
start_delay_s = 1.0
aggregation_timeout_s = 5.0
ack_timeout_s = 8.0
watchdog_s = 12.0
"""


def plexus(*words: object, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plexus", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class Peers:
    """Two peers started by hand."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.host = "[::1]" if _has_ipv6() else "127.0.0.1"
        self.ports = free_ports(2)
        self.metrics_port = free_ports(1)[0]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        (self.place / "two.toml").write_text(SPEC)
        plexus("session", "init", "authority", "--from", "two.toml", cwd=self.place)
        for number in (0, 1):
            key = plexus("node", "key", "--home", f"n{number}", cwd=self.place).stdout.strip()
            where = self.place / f"n{number}" / "node.crt"
            said = plexus("session", "invite", "authority", key, "--out", where, cwd=self.place)
            assert said.stdout == f"the certificate, good for 30 days, is in {where}\n"

    def start(self, number: int) -> None:
        words = ["node", "start", "authority/session.toml", "--home", f"n{number}"]
        words += ["--data", number, "--listen", f"{self.host}:{self.ports[number]}"]
        if number:
            words += ["--join", f"{self.host}:{self.ports[0]}"]
        else:
            words += ["--metrics", f"127.0.0.1:{self.metrics_port}"]
        with (self.place / f"log{number}").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "plexus", *map(str, words)], cwd=self.place, stderr=log
            )

    def status(self, number: int) -> dict[str, Any] | None:
        done = plexus(*("node", "status", "--json", "--home", f"n{number}"), cwd=self.place, check=False)
        found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode in (0, 1) else None
        return found

    def until(self, number: int, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the node's status is as wanted."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            status = self.status(number)
            if status is not None and is_so(status):
                return status
            assert self.processes[number].poll() is None, (self.place / f"log{number}").read_text()
            time.sleep(0.3)
        raise AssertionError(f"node {number} did not come that far: {status}")

    def until_round(self, number: int, wanted: int) -> dict[str, Any]:
        return self.until(number, lambda status: status.get("round", 0) >= wanted)

    def kill_worker(self, number: int) -> None:
        pid = self.processes[number].pid
        [worker] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)

    def state(self, number: int) -> State:
        return read_state(self.place / f"n{number}" / STATE_FILE)


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    there = Peers(tmp_path)
    there.prepare()
    yield there
    for process in there.processes.values():
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.slow
def test_two_peers_from_founding_to_export(peers: Peers) -> None:
    place = peers.place
    assert (place / "authority" / "authority.key").stat().st_mode & 0o777 == 0o600
    peers.start(1)
    peers.until(1, lambda status: status["phase"] == "joining" and status["waiting_for"][0]["reason"])
    done = plexus("node", "status", "--home", "n1", cwd=place, check=False)
    assert done.returncode == 1, "it is there, and not online"
    told = done.stdout
    nobody = f"{peers.host}:{peers.ports[0]}: cannot be reached"
    assert "of session two: joining for" in told
    assert re.search(rf"waits for a member of the session since [\d.]+ s: {re.escape(nobody)}", told)
    peers.start(0)
    peers.until_round(0, 45)
    peers.until_round(1, 45)
    told = plexus("node", "status", "--home", "n1", cwd=place).stdout
    for words in ("of session two: online", "1 linked of 1 known", "sample of round", "accuracy"):
        assert words in told
    for alarm in ("progress of the session", "somebody knows this node"):
        assert alarm not in told
    timers = peers.until_round(1, 45)["timers"]
    assert "progress of the session" in [each["what"] for each in timers]
    page = f"http://127.0.0.1:{peers.metrics_port}/metrics"
    with urllib.request.urlopen(page, timeout=10) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines() if line[0] != "#"]
    metrics = {words[0]: float(words[-1]) for words in lines}
    assert metrics["plexus_online"] == 1
    assert metrics["plexus_online_view"] == 2
    assert metrics["plexus_seconds_since_progress"] < 60
    for path in ("healthz", "readyz"):
        with urllib.request.urlopen(page.replace("metrics", path), timeout=10) as answer:
            assert answer.read() == b"ok\n"
    assert metrics["plexus_round"] >= 5
    assert metrics["plexus_peers_linked"] == 1
    assert metrics["plexus_errors_total"] == 0
    sent = {what: metrics[f"plexus_{what}_sent_bytes_total"] for what in ("message", "model")}
    assert all(float(count) > 0 for count in sent.values())
    # The model has 3 KB: a probe for joining is the smallest there is.
    assert 0 < float(metrics["plexus_probe_sent_bytes_total"]) < 100_000
    assert float(metrics["plexus_link_sent_bytes_total"]) > sum(map(float, sent.values()))

    peers.kill_worker(1)
    trained = int(metrics["plexus_round"])
    peers.until(1, lambda status: status["sample"]["round"] > trained + 20)
    assert '"event":"worker_lost"' in (place / "log1").read_text()

    said = plexus("node", "stop", "--home", "n1", cwd=place).stdout
    assert said == "the peer in n1 has left the session and ended\n"
    assert peers.processes[1].wait(timeout=10) == 0
    stopped = peers.state(1)
    said = plexus("export", "n1", "-o", "model.safetensors", cwd=place).stdout
    assert said == f"the model of round {stopped.ordinal} is in model.safetensors\n"
    model = create_task("digits", nodes=2, seed=1, hidden=8).build_model()
    model.load_state_dict(load_file(place / "model.safetensors"))
    plexus("export", "n0", "-o", "best.safetensors", "--best", cwd=place)
    about = metadata_of(place / "best.safetensors")
    assert (about["task"], about["metric"], int(about["round"]) > 0) == ("digits", "accuracy", True)
    assert float(about["value"]) > 0.5
    load_model(place / "best.safetensors", place)

    peers.start(1)
    peers.until_round(1, stopped.ordinal + 2)
    assert peers.state(1).counter > stopped.counter
    peers.processes[1].kill()
    peers.processes[1].wait()
    killed = peers.state(1)
    peers.start(1)
    peers.until_round(1, killed.ordinal + 2)
    assert peers.state(1).counter > killed.counter  # another one for each bandwidth that turns out later
    log = (place / "log1").read_text()
    assert f'"event":"online","counter":{killed.counter + 1},"round":{killed.ordinal},' in log

    id = log.partition('"node":"')[2][:32]
    said = plexus("session", "revoke", "authority", id, cwd=place).stdout
    assert said.startswith(f"revoked 1 certificates of {id}")
    shutil.copy(place / "authority" / "revoked.crl", place / "n0" / "revoked.crl")
    peers.until(0, lambda status: status["peers"]["linked"] == 0)
    assert peers.processes[1].wait(timeout=30) == RevokedError.exit_code
    assert "this certificate has been revoked" in (place / "log1").read_text()
    peers.processes[0].terminate()
    assert peers.processes[0].wait(timeout=20) == 0


@pytest.mark.slow
def test_the_session_file_is_rehearsed_by_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(SPEC)
    plexus("session", "init", "authority", "--from", "two.toml", cwd=tmp_path)
    done = plexus(*("run", "authority/session.toml", "--json", "--quiet", "--out", "rehearsal"), cwd=tmp_path)
    assert json.loads(done.stdout)["rounds"] > 5


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["node", "status", "--home", "nowhere"], "nowhere: no peer is running here"),
        (
            ["export", "nowhere", "-o", "x.safetensors"],
            "nowhere: neither a run with a model, nor a peer's home, nor a fleet",
        ),
        (
            ["export", "fleet", "--best", "-o", "x.safetensors"],
            "fleet: the best is known when the fleet has ended; a peer's is in fleet/node-00",
        ),
        (["export", "new", "-o", "x.safetensors"], "new: this node holds no model but the initial one yet"),
        (["export", "new", "--best", "-o", "x.safetensors"], "new: no model was measured yet"),
        (["export", "new", "-o", "out/x.safetensors"], "out: no such folder"),
        (
            ["export", "new", "-o", "out/x.pt"],
            "out/x.pt: models are written as safetensors: use x.safetensors",
        ),
        (
            ["session", "revoke", "authority", "zz"],
            "neither a node's name, nor a public key, nor a node's id",
        ),
        (
            ["session", "revoke", "authority", "0123456789AB"],
            "authority: no certificate was issued to a node 0123456789ab",
        ),
        (["session", "revoke", "authority", "5"], " ids begin (5"),
        (["session", "invite", "authority", "nonsense"], "is not a public key"),
        (["node", "start", "quickstart", "--data", "0"], "quickstart.toml: [session] has no authority"),
        (
            ["node", "start", "plain.toml", "--data", "0"],
            "plain.toml: [session] has no authority: `plexus session init` makes a session file",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0", "--listen", "nowhere"],
            "--listen nowhere: not an address",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0"],
            "plexus-node: no such folder; make one with: plexus node key --home plexus-node",
        ),
        (
            [*("node", "start", "authority/session.toml", "--data", "0"), "--bandwidth", "4294967296"],
            "--bandwidth 4294967296: at most 4294967295 bytes per second",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0", "--home", "damaged"],
            "damaged/state.bin: damaged, or of another version of Plexus; move state.bin away",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0", "--home", "spoilt"],
            "spoilt/model-best.safetensors: damaged, or not a safetensors file: ",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0", "--home", "strange"],
            "strange/state.bin: no message has the tag 99; move state.bin away",
        ),
        (
            ["fleet", "run", "plain.toml", "--set", 'protocol={name="dpsgd"}'],
            "plain.toml: protocol.round_duration_s is not set: live, a round of this protocol has to end by",
        ),
        (
            ["node", "start", "authority/session.toml", "--data", "0", "--server"],
            "authority/session.toml: --server is for protocol fedavg or fedbuff; plexus has no server",
        ),
        (
            ["fleet", "run", "plain.toml", "--set", "evaluation.every_rounds=0"],
            "plain.toml: evaluation.every_rounds is 0, but live peers evaluate by rounds",
        ),
        *(
            [
                [*command, "--set", 'faults=[{kind="crash",from_h=0,to_h=0.001,nodes=[0]}]'],
                "plain.toml: faults are simulated; live peers cannot run a spec that has some",
            ]
            for command in (
                ["fleet", "run", "plain.toml"],
                ["session", "init", "new", "--from", "plain.toml"],
            )
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.toml").write_text(SPEC)
    with pytest.raises(SystemExit) as founded:
        main(["session", "init", "authority", "--from", "plain.toml"])
    assert founded.value.code == 0
    (tmp_path / "fleet" / "node-00").mkdir(parents=True)
    (tmp_path / "fleet" / "node-00" / "state.bin").touch()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "node.key").touch()
    session, _ = read_session_file(Path("authority/session.toml"))
    authority = Authority.load(Path("authority"))
    for number in (6, 19):
        authority.invite(bytes([number]) * 32, session.digest, timedelta(days=1))
    strange = State(session=session.digest, view=b"\0\0\0\2\x91\x63")
    homes = {"damaged": b"rubbish", "strange": encode_state(strange), "spoilt": encode_state(strange)}
    for name, state in homes.items():
        make_home(Path(name))
        public = create_key(Path(name) / "node.key").public_key().public_bytes_raw()
        text = authority.invite(public, session.digest, timedelta(days=1))
        (Path(name) / "node.crt").write_text(text)
        (Path(name) / "state.bin").write_bytes(state)
    Path("spoilt", "model-best.safetensors").write_bytes(b"rubbish")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.strip().splitlines()) == 1


def test_a_key_is_printed_again_not_made_again(tmp_path: Path) -> None:
    first = plexus("node", "key", "--home", "n", cwd=tmp_path).stdout
    assert plexus("node", "key", "--home", "n", cwd=tmp_path).stdout == first
    assert os.stat(tmp_path / "n" / "node.key").st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / "n").st_mode & 0o777 == 0o700


def test_a_home_that_others_can_look_into_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir(mode=0o755)
    done = plexus("node", "key", "--home", "n", cwd=tmp_path)
    assert done.stdout.startswith("ed25519:")
    assert done.stderr == ("n: its mode is 755, so others can look into it; run chmod 700 n\n")


def test_a_session_of_ones_own_task_is_founded_and_a_peer_gets_as_far_as_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = re.sub(r'name = "digits"', 'name = "mine:build"', SPEC)
    assert own != SPEC
    (tmp_path / "own.toml").write_text(own)
    with pytest.raises(SystemExit) as founded:
        main(["session", "init", "authority", "--from", "own.toml"])
    assert founded.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["node", "start", "authority/session.toml", "--home", "home", "--data", "0"])
    assert ended.value.code == 2
    assert "home" in capsys.readouterr().err
