"""Sessions of real processes that begin together, end together, and go on after all of them were killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from plexus.live.fleet.fleet import free_ports
from plexus.live.identity.session_file import SESSION_FILE
from plexus.live.state import STATE_FILE, read_state
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL, metadata_of

NODES = 3
SPEC = """
name = "course"
nodes = 3
hours = 0.05
evaluation = { every_rounds = 5 }
task = { name = "digits", hidden = 8, partition = "shards" }
traces = { availability = "none" }

[protocol]
sample_size = 3
start_delay_s = 0.5
aggregation_timeout_s = 5.0
ack_timeout_s = 9.0
watchdog_s = 600.0
"""


class Course:
    """Three peers, started one by one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = free_ports(NODES)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def found(self, *session: str, spec: str = SPEC) -> None:
        (self.place / "spec.toml").write_text(spec + "\n[session]\n" + "\n".join(session))
        self.plexus("session", "init", "authority", "--from", "spec.toml")
        for number in range(NODES):
            key = self.plexus("node", "key", "--home", f"n{number}").stdout.strip()
            self.plexus("session", "invite", "authority", key, "--out", f"n{number}/node.crt")

    def plexus(self, *words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "plexus", *map(str, words)]
        done = subprocess.run(command, cwd=self.place, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def start(self, number: int, *more: object, program: str = "plexus") -> None:
        if number in self.processes:
            self.processes[number].wait(timeout=30)
        words = ["node", "start", "authority/session.toml", "--home", f"n{number}", "--data", number]
        words += ["--listen", f"127.0.0.1:{self.ports[number]}"]
        for other in range(number):
            words += ["--join", f"127.0.0.1:{self.ports[other]}"]
        with (self.place / f"n{number}.log").open("ab") as log:
            command = [sys.executable, "-m", program, *map(str, (*words, *more))]
            path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
            environment = {**os.environ, "PYTHONPATH": path}
            self.processes[number] = subprocess.Popen(command, cwd=self.place, stderr=log, env=environment)

    def log(self, number: int, event: str) -> list[dict[str, Any]]:
        lines = (self.place / f"n{number}.log").read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in said if line["event"] == event]

    def until(self, is_so: Callable[[], object], at_most_s: float = 120.0) -> None:
        until = time.monotonic() + at_most_s
        while not is_so():
            assert time.monotonic() < until, [
                (self.place / f"n{n}.log").read_text()[-2000:] for n in self.processes
            ]
            time.sleep(0.1)

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def weights(self, number: int, file: str = FINAL_MODEL) -> dict[str, bytes]:
        with safe_open(self.place / f"n{number}" / file, "np") as model:
            return {name: model.get_tensor(name).tobytes() for name in model.keys()}  # noqa: SIM118


@pytest.fixture
def course(tmp_path: Path) -> Iterator[Course]:
    found = Course(tmp_path)
    yield found
    found.kill()


@pytest.mark.slow
def test_a_session_begins_when_enough_are_there_and_ends_with_its_last_round(course: Course) -> None:
    course.found("rounds = 12", "start_with = 3")
    aim = "it begins when 3 nodes are there; it ends with round 12\n"
    said = course.plexus("session", "status", "n0", status=1).stdout
    assert said == "no session was started here yet\n"
    shutil.copy(course.place / "authority" / SESSION_FILE, course.place / "n0")
    said = course.plexus("session", "status", "n0", status=1).stdout
    assert said == f"session course: round 0; {aim}"
    for number in (0, 1):
        course.start(number)
    course.until(lambda: course.log(0, "online") and course.log(1, "online"))
    time.sleep(3.0)  # several times what they wait for others before the first round
    assert not course.log(0, "TrainingStarted")
    said = course.plexus("session", "status", "n0", status=1).stdout
    waits = "waits for 3 nodes before the first round; 2 are there\n"
    assert said == f"session course: round 0; {aim}{waits}"
    assert waits in course.plexus("node", "status", "--home", "n0").stdout
    course.start(2)
    assert [course.processes[number].wait(timeout=90) for number in range(NODES)] == [0, 0, 0]
    assert course.weights(0) == course.weights(1) == course.weights(2)
    for number in range(NODES):
        assert course.log(number, "session_ended")[-1]["round"] == 12
        assert not [line for line in course.log(number, "failure") if line["level"] == "error"]
        told = json.loads(course.plexus("session", "status", f"n{number}", "--json").stdout)
        assert (told["ended"], told["round"]) == (True, 12)
        assert told["final_model"] == f"n{number}/{FINAL_MODEL}"
        assert metadata_of(course.place / f"n{number}" / BEST_MODEL)["value"]
    said = course.plexus("export", "n1", "-o", "final.safetensors").stdout
    assert said == "the model of round 12 is in final.safetensors\n"
    course.start(0)
    assert course.processes[0].wait(timeout=60) == 0, "it is over, and remains so"


@pytest.mark.slow
@pytest.mark.parametrize("end", ['until = "accuracy >= 0.6"', "patience = 20"])
def test_what_one_measures_all_end_with(course: Course, end: str) -> None:
    """The others see for themselves, soon, and nobody suspects anybody."""
    course.found(end, "rounds = 100000", "start_with = 3")
    for number in range(NODES):
        course.start(number)
    assert [course.processes[number].wait(timeout=150) for number in range(NODES)] == [0, 0, 0]
    assert course.weights(0) == course.weights(1) == course.weights(2)
    assert len({course.log(number, "session_ended")[-1]["round"] for number in range(NODES)}) == 1
    for number in range(NODES):
        assert not course.log(number, "Refused") and not course.log(number, "EndRevoked")
        assert not [line for line in course.log(number, "failure") if line["level"] == "error"]
    course.start(0)
    assert course.processes[0].wait(timeout=60) == 0, "it is over, and remains so"


@pytest.mark.slow
def test_who_was_away_at_the_end_gets_the_model_from_one_that_stays(course: Course) -> None:
    course.found('until = "accuracy >= 0.3"', "rounds = 2000", "start_with = 2")
    course.start(0, "--stay")
    course.start(1)
    course.until(lambda: course.log(1, "AggregationCompleted"))
    assert course.processes[1].wait(timeout=120) == 0
    assert read_state(course.place / "n1" / STATE_FILE).ordinal < 2000
    value = float(metadata_of(course.place / "n1" / BEST_MODEL)["value"])
    assert value >= 0.3
    course.start(2)
    assert course.processes[2].wait(timeout=60) == 0
    assert course.weights(2) == course.weights(1) == course.weights(0)
    assert json.loads(course.plexus("node", "status", "--home", "n0", "--json").stdout)["phase"] == "ended"
    course.plexus("node", "stop", "--home", "n0")
    assert course.processes[0].wait(timeout=20) == 0


@pytest.mark.slow
def test_after_all_were_killed_the_session_goes_on_long_before_the_watchdog(course: Course) -> None:
    course.found("rounds = 100000")
    for number in range(NODES):
        course.start(number)
    course.until(lambda: any(course.log(n, "AggregationCompleted") for n in range(NODES)))
    course.kill()
    before = max(read_state(course.place / f"n{n}" / STATE_FILE).ordinal for n in range(NODES))
    seen = sum(len(course.log(n, "AggregationCompleted")) for n in range(NODES))
    for number in range(NODES):
        course.start(number)
    course.until(lambda: sum(len(course.log(n, "AggregationCompleted")) for n in range(NODES)) > seen, 60.0)
    newest = max(
        course.log(n, "AggregationCompleted")[-1]["round"]
        for n in range(NODES)
        if course.log(n, "AggregationCompleted")
    )
    assert newest > before


@pytest.mark.slow
def test_who_was_killed_and_comes_back_to_few_works_with_them_again(course: Course) -> None:
    """The two who are left average what they train, and heed the third when it is back, whose examples are of
    other classes."""

    def completed(number: int) -> list[dict[str, Any]]:
        return course.log(number, "AggregationCompleted")

    def rounds() -> int:
        return max((line["round"] for n in range(NODES) for line in completed(n)), default=0)

    def more(count: int) -> None:
        begun = rounds()
        course.until(lambda: rounds() >= begun + count, 60.0)

    course.found("rounds = 100000", "start_with = 3")
    spec = course.place / "authority" / "session.toml"
    assert 'partition = "shards"' in spec.read_text(), "each has classes of its own"
    for number in range(NODES):
        course.start(number)
    course.until(lambda: rounds() >= 20)
    course.processes[2].kill()
    more(30)
    seen = {n: len(completed(n)) for n in (0, 1)}
    more(150)
    alone = [line for n in seen for line in completed(n)[seen[n] :] if line["models"] < 2]
    assert not alone, "one model is no average"
    trained = len(course.log(2, "AggregatorChosen"))
    course.start(2)
    more(30)
    course.until(lambda: len(course.log(2, "AggregatorChosen")) >= trained + 5, 60.0)
    assert not [line for n in range(NODES) for line in course.log(n, "Refused")]


@pytest.mark.slow
def test_who_was_to_be_joined_and_starts_last_is_found(course: Course) -> None:
    """It has nobody to join itself, and the others have found each other without it."""
    course.found("rounds = 100000", "start_with = 2")
    for number in (1, 2):
        course.start(number)
    course.until(lambda: course.log(1, "TrainingStarted") and course.log(2, "TrainingStarted"))
    course.start(0)
    course.until(lambda: course.log(0, "TrainingStarted"))
    assert course.log(0, "QuorumMissing") == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["session", "status", "nowhere"], "nowhere: not a peer's home"),
        (
            ["session", "init", "a", "--from", "spec.toml", "--set", "session.rounds=0"],
            "--set session.rounds=0: expected an integer >= 1, got 0",
        ),
        (
            ["session", "init", "a", "--from", "spec.toml", "--set", "session.until=good"],
            "until is 'good', but must be a metric, >= or <=, and a number, as 'accuracy >= 0.95'",
        ),
        (
            ["run", "spec.toml", "--set", "session.rounds=3", "--set", "protocol={name='gossip'}"],
            "only the protocol plexus has a beginning and an end, not gossip",
        ),
        (
            ["run", "spec.toml", "--set", "session.until='f1 >= 0.5'"],
            "session.until is 'f1 >= 0.5', but models are measured by accuracy and loss",
        ),
    ],
)
def test_bad_courses_are_named_in_one_line(course: Course, words: list[str], complaint: str) -> None:
    (course.place / "spec.toml").write_text(SPEC)
    said = course.plexus(*words, status=2).stderr
    assert complaint in said
    assert said.count("\n") == 1


def test_a_rehearsal_ends_as_the_session_will(course: Course) -> None:
    (course.place / "spec.toml").write_text(SPEC + "\n[session]\nrounds = 7\n")
    done = json.loads(course.plexus("run", "spec.toml", "--json", "--quiet", "--out", "run").stdout)
    assert done["rounds"] == 7
    assert done["simulated_s"] < 180
    until = ["--set", "session={until='accuracy >= 0.2'}", "--set", "hours=1"]
    done = json.loads(course.plexus("run", "spec.toml", *until, "--json", "--quiet", "--out", "r2").stdout)
    assert done["simulated_s"] < 3600
    assert done["metric"]["final"] >= 0.2


@pytest.mark.slow
def test_a_fleet_ends_with_its_session(course: Course) -> None:
    (course.place / "spec.toml").write_text(SPEC + "\n[session]\nrounds = 6\n")
    done = json.loads(
        course.plexus("fleet", "run", "spec.toml", "--seconds", 110, "--json", "--out", "f").stdout
    )
    assert (done["rounds"], done["failed"]) == (6, False)
    assert done["seconds"] < 110
    assert len({(course.place / "f" / f"node-0{n}" / FINAL_MODEL).read_bytes() for n in range(NODES)}) == 1
