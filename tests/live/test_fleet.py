"""Fleets: the acceptance run, and fleets shaped and thinned out by traces."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plexus.cli import main
from plexus.cli.export import model_of
from plexus.cli.fleet import fleet_table, share_of_data
from plexus.errors import PlexusError
from plexus.live.fleet.fleet import FleetConfig, FleetResult, run_fleet
from plexus.live.fleet.members import NodeResult
from plexus.live.identity.admission import CERTIFICATE_FILE, WARNED_OF_EXPIRY_S
from plexus.live.identity.authority import load_certificates
from plexus.live.identity.session_file import found_session
from plexus.live.worker.client import Ready
from plexus.runs.model_files import FINAL_MODEL, metadata_of
from plexus.spec.experiment import ExperimentSpec, load_spec, parse_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-session.toml"


@pytest.mark.slow
def test_twelve_peers_learn_digits(tmp_path: Path) -> None:
    command = ["fleet", "run", str(EXAMPLE), "--nodes", "12", "--seconds", "80", "--rounds", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "plexus", *command, "--out", str(tmp_path / "fleet"), "--json"],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(f"\n{result['rounds']} rounds in {result['seconds']:.0f} s, {result['best_metric']:.3f}")
    assert result["rounds"] >= 30
    assert result["best_metric"] >= 0.9
    assert [node["exit_status"] for node in result["nodes"]] == [0] * 12
    assert [node["errors"] for node in result["nodes"]] == [0] * 12
    assert sum(node["aggregated"] for node in result["nodes"]) >= result["rounds"] - 1


@pytest.mark.slow
def test_live_peers_use_late_models(tmp_path: Path) -> None:
    """Half of a sample completes a round; of the others almost all count later, none more than once."""
    overrides = ["nodes=6", "protocol.success_fraction=0.5", "protocol.late_rounds=20", "task.local_steps=40"]
    config = FleetConfig(seconds=60.0, rounds=20, out=tmp_path / "fleet")
    result = asyncio.run(run_fleet(load_spec(EXAMPLE, overrides), tmp_path, config))
    assert not result.failed and result.best_metric > 0.9
    logs = [path.read_text().splitlines() for path in sorted((tmp_path / "fleet").glob("node-*/log.jsonl"))]
    said = [json.loads(line) for log in logs for line in log]
    offers = sum(line["event"] == "LateModelSent" for line in said)
    added = sum(line["late"] for line in said if line["event"] == "AggregationCompleted")
    assert offers / 2 < added <= offers


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "rounds"), [(60.0, 2), (1.0, 1000)])
def test_a_fleet_too_short_for_an_evaluation_has_a_metric(
    tmp_path: Path, seconds: float, rounds: int
) -> None:
    """Of its newest model or, if it was too short for any round, of the initial one."""
    spec = load_spec(EXAMPLE, ["nodes=2", "evaluation.every_rounds=1000"])
    config = FleetConfig(seconds=seconds, rounds=rounds, out=tmp_path / "fleet")
    result = asyncio.run(run_fleet(spec, tmp_path, config))
    assert not result.failed
    assert result.metric_name == "accuracy"
    assert 0 < result.metric <= 1
    assert result.best_metric == result.metric
    assert (tmp_path / "fleet" / "node-01").stat().st_mode & 0o777 == 0o700
    certificate = load_certificates(tmp_path / "fleet" / "node-01" / CERTIFICATE_FILE)[0]
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    assert left.total_seconds() > max(WARNED_OF_EXPIRY_S), "nobody warns of its end"


@pytest.mark.slow
def test_a_fleet_that_cannot_start_says_why_and_leaves_an_earlier_one_alone(tmp_path: Path) -> None:
    spec = tmp_path / "untrained.toml"
    spec.write_text('name = "x"\nnodes = 2\nhours = 1\ntask = { name = "untrained" }\n')
    out = tmp_path / "fleet"
    command = ["fleet", "run", str(spec), "--out", str(out)]

    def run(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "plexus", *command, *words], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 2
        reason = "task.name: untrained has nothing to learn; only `plexus run` can use it"
        assert done.stderr == f"plexus: {reason}\n"

    run()
    assert not out.exists()
    found_session(out / "session", parse_spec(SHAPED, "shaped.toml").plain())
    run("--force")
    assert [each.name for each in out.iterdir()] == ["session"]


def test_a_reason_that_many_nodes_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    def node(number: int, status: int, last_words: str) -> NodeResult:
        counts = dict.fromkeys(("round", "trained", "aggregated", "starts", "errors"), 1)
        sizes = {"sent_bytes": 0, "received_bytes": 0}
        return NodeResult(
            number=number,
            id="a",
            exit_status=status,
            last_words=last_words,
            failure="" if number else "no memory",
            **counts,
            **sizes,
        )

    nodes = [node(0, 0, ""), node(1, 2, "no [data]"), node(2, 2, "no [data]"), node(3, -9, "")]
    values = {"metric_name": "accuracy", "metric": 0.5, "best_metric": 0.6}
    fleet_table(
        FleetResult(name="x", seconds=1, rounds=1, nodes=nodes, failed=True, stopped="", out="f", **values)
    )
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "node 0 could not train or evaluate: no memory",
        "node 1 and 1 more ended with 2: no [data]",
        "node 3 ended with -9: see f/node-03/log.jsonl",
    ]


def test_what_part_of_the_data_takes_part() -> None:
    said = share_of_data(3, Ready("accuracy", True, 30, 84, 1360))
    assert said == "3 nodes have 84 of 1,360 examples; the rest takes no part"


SHAPED = """
name = "shaped"
nodes = 5
hours = 1
evaluation = { every_rounds = 2 }
task = { name = "digits" }

[traces]
availability = "none"
uniform_up_kbps = 800.0
uniform_down_kbps = 1600.0

[protocol]
sample_size = 3
start_delay_s = 2.0
aggregation_timeout_s = 10.0
ack_timeout_s = 15.0
watchdog_s = 20.0
"""


@pytest.mark.slow
def test_a_shaped_fleet_measures_the_bandwidth_of_its_traces(tmp_path: Path) -> None:
    spec = parse_spec(SHAPED, "shaped.toml")
    config = FleetConfig(seconds=60.0, rounds=6, out=tmp_path / "fleet", shape=True)
    result = asyncio.run(run_fleet(spec, tmp_path, config))
    assert not result.failed
    assert result.rounds >= 6
    online = [
        line
        for number in range(5)
        for line in map(json.loads, _log(tmp_path / f"fleet/node-{number:02}"))
        if line["event"] == "online"
    ]
    measured = sorted(line["bandwidth_bytes_per_s"] for line in online)
    # 800 kbit/s up: shared with others who measure at the same time, so the best is close to it.
    assert 0 < measured[-1] <= 1.2 * 100_000
    assert measured[-1] >= 0.3 * 100_000


def _log(home: Path) -> list[str]:
    return (home / "log.jsonl").read_text().splitlines()


@pytest.mark.slow
def test_a_fleet_with_churn_from_traces(tmp_path: Path) -> None:
    spec = load_spec(EXAMPLE, ["traces.availability=strict", "traces.graceful_share=0.5", "nodes=40"])
    config = FleetConfig(seconds=25.0, out=tmp_path / "fleet", churn=60.0)
    result = asyncio.run(run_fleet(spec, tmp_path, config))
    assert not result.failed
    starts = [node.starts for node in result.nodes]
    assert sum(starts) > 3, "some devices came"
    assert any(node.starts == 0 for node in result.nodes), "most devices never did"
    assert all(node.errors == 0 for node in result.nodes)


def test_another_protocol_runs_a_file_with_a_session_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[ExperimentSpec] = []

    async def note(spec: ExperimentSpec, *_: object) -> None:
        ran.append(spec)
        raise PlexusError("that will do")

    monkeypatch.setattr("plexus.cli.fleet.run_fleet", note)
    hospital = str(EXAMPLE.parent / "hospital" / "session.toml")
    for words in (["--protocol", "gossip", "--nodes", "3"], ["--protocol", "plexus"]):
        with pytest.raises(SystemExit):
            main(["fleet", "run", hospital, *words])
    assert [(spec.protocol.name, spec.nodes, spec.session.rounds) for spec in ran] == [
        ("gossip", 3, None),
        ("plexus", 8, 20),
    ]
    left_out = f"{hospital}: [session] is left out: gossip runs until it is stopped"
    assert capsys.readouterr().err.splitlines() == [left_out, *["plexus: that will do"] * 2]


def processes_of(folder: Path) -> list[int]:
    """Those that were started with something in this folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(folder) in each.read_bytes():
                found.append(int(each.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "is_for_all"), [(signal.SIGTERM, False), (signal.SIGINT, True), (signal.SIGKILL, False)]
)
def test_a_fleet_that_is_stopped_leaves_its_models_and_no_process(
    tmp_path: Path, number: signal.Signals, is_for_all: bool
) -> None:
    """As by a supervisor, by Ctrl-C, and by force: then nothing is measured, but no peer goes on alone."""
    out = tmp_path / "fleet"
    command = [sys.executable, "-m", "plexus", "fleet", "run", str(EXAMPLE), "--nodes", "3"]
    command += ["--rounds", "5000", "--set", "protocol.start_delay_s=0", "--out", str(out)]
    fleet = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        until = time.monotonic() + 60
        while b"AggregationCompleted" not in b"".join(
            log.read_bytes() for log in out.glob("node-*/log.jsonl")
        ):
            assert time.monotonic() < until and fleet.poll() is None
            time.sleep(0.1)
        time.sleep(1.0)
        (os.killpg if is_for_all else os.kill)(fleet.pid, number)
        _, said = fleet.communicate(timeout=40)
        until = time.monotonic() + 20
        while processes_of(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert processes_of(tmp_path) == []
    finally:
        for left in processes_of(tmp_path):
            os.kill(left, signal.SIGKILL)
    if number != signal.SIGKILL:
        assert fleet.returncode == 130
        assert said.startswith(b"plexus: stopped in round") and b"Traceback" not in said
        assert json.loads((out / "result.json").read_bytes())["interrupted"]
        assert metadata_of(out / FINAL_MODEL)["round"]
    assert model_of(out, best=False)


@pytest.mark.slow
def test_a_fleet_whose_time_is_over_before_its_rounds_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plexus", "fleet", "run", str(EXAMPLE), "--nodes", "2", "--seconds", "4"]
    command += ["--rounds", "100000", "--out", str(tmp_path / "fleet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "after 4 s (--seconds)" in done.stderr
