"""The commands beside `run`, and what the command line must not do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from plexus import cli
from plexus.protocol.registry import PARAMETERS
from plexus.runs.run import load_run
from tests.cli.standin import SPEC, Plexus


def test_bench_protocol_prints_one_object(plexus: Plexus) -> None:
    arguments = ("bench", "protocol", "--nodes", "30", "--hours", "0.2", "--churn", "--json")
    outcome = plexus(*arguments)
    printed = json.loads(outcome.out)
    assert (outcome.status, outcome.err) == (0, "")
    assert (printed["nodes"], printed["hours"], printed["churn"]) == (30, 0.2, True)
    assert printed["cpu_s_per_simulated_hour"] > 0
    assert printed["messages_per_s"] > 0
    assert printed["peak_mb"] > 0
    assert json.loads(plexus(*arguments).out)["digest"] == printed["digest"]
    assert json.loads(plexus(*arguments, "--seed", "2").out)["digest"] != printed["digest"]


def test_bench_protocol_is_readable_without_json(plexus: Plexus) -> None:
    outcome = plexus("bench", "protocol", "--nodes", "20", "--hours", "0.1")
    assert "plexus alone, 20 nodes, 0.1 h, without churn" in outcome.out
    assert "per simulated hour" in outcome.out
    assert "20 nodes on average, 0 joins and leaves an hour" in outcome.out


def test_bench_protocol_shows_how_it_grows(plexus: Plexus, tmp_path: Path) -> None:
    arguments = ("bench", "protocol", "--nodes", "20,40", "--hours", "0.1", "--plot", str(tmp_path / "g.png"))
    outcome = plexus(*arguments)
    heading, smaller, larger = (line.split() for line in outcome.out.splitlines() if line and ":" not in line)
    assert (heading[0], smaller[0], larger[0]) == ("nodes", "20", "40")
    assert len(larger) == len(smaller) + 2, "the first did not grow"
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    printed = json.loads(plexus(*arguments[:6], "--json").out)
    assert [each["nodes"] for each in printed] == [20, 40]


@pytest.mark.parametrize("arguments", [["--nodes", "0"], ["--hours", "0"], ["--nodes", "9,many"]])
def test_bench_protocol_refuses_impossible_sizes(plexus: Plexus, arguments: list[str]) -> None:
    outcome = plexus("bench", "protocol", *arguments)
    assert outcome.status == 2
    assert f"Error: Invalid value for '{arguments[0]}'" in outcome.err


def test_help_lists_every_command_with_what_it_does(plexus: Plexus) -> None:
    outcome = plexus("--help")
    assert outcome.status == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "bench Measure what simulating costs on this machine." in lines
    assert "run Simulate the experiment in SPEC." in lines


def test_a_command_that_needs_a_missing_package_says_which(
    plexus: Plexus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    outcome = plexus("new", "mytask")
    assert (outcome.status, outcome.err) == (
        2,
        "plexus: this needs the Python module jinja2, which is not installed\n",
    )


def test_every_command_is_a_file_and_every_file_of_a_command_is_listed() -> None:
    context = click.Context(cli.cli, info_name="plexus")
    listed = cli.cli.list_commands(context)
    assert all(cli.cli.get_command(context, name) is not None for name in listed)
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    assert files - set(listed) == {"__init__", "groups", "progress", "summary"}
    assert set(listed) - files == {"completion"}, "about all commands, so it is where the group is"


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """Starting stays quick, and works where torch is not installed."""
    script = (
        "import sys; from plexus.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted({'torch', 'numpy', 'rich', 'matplotlib', 'sklearn'} & sys.modules.keys()))"
    )
    printed = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert printed.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_no_traceback() -> None:
    script = "from plexus.cli import main; main(['--help'])"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        child = subprocess.run(
            [sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (child.returncode, child.stderr) == (1, b"")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_real_signal_leaves_a_valid_directory(tmp_path: Path, stop: signal.Signals) -> None:
    """It comes while the process is busy, in the background of a script (deaf to SIGINT)."""
    (tmp_path / "small.toml").write_text(SPEC)
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"import sys, itertools; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from plexus import cli\n"
        "from plexus.experiment.progress import Tick\n"
        "from tests.cli import standin\n"
        "class Busy(standin.Session):\n"
        "    def _step(self, spec, directory, progress, step):\n"
        "        for step in itertools.count():\n"
        "            directory.recorder.record('online', simulated_s=float(step), online=1)\n"
        "            progress(Tick(float(step), step, 1))\n"
        "            if step == 5000: print('busy', flush=True)\n"
        "sys.modules['plexus.experiment.simulation'] = Busy('plexus.experiment.simulation')\n"
        "cli.main(['run', 'small.toml', '--out', 'here'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        started = child.stdout.readline()
        child.send_signal(stop)
        _, errors = child.communicate()
    assert started == "busy\n", errors
    assert child.returncode == 130
    assert "Traceback" not in errors
    assert "plexus: stopping after this simulated minute; once more stops at once\n" in errors
    assert errors.splitlines()[-1].startswith("plexus: interrupted at ")
    assert errors.splitlines()[-1].endswith("; go on with: plexus run --resume here")
    run = load_run(tmp_path / "here")
    assert run.result is not None
    assert run.result.interrupted
    assert len(run.tables["online"]["online"]) > 5000


def test_bench_protocol_measures_any_protocol(plexus: Plexus) -> None:
    arguments = ("bench", "protocol", "--nodes", "20", "--hours", "0.1")
    outcome = plexus(*arguments, "--protocol", "dpsgd", "--set", "topology=ring", "--churn")
    assert "dpsgd alone, 20 nodes, 0.1 h, with churn" in outcome.out
    assert "time for 99 % of 40 transfers without churn" in outcome.out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("--protocol", "gosip"),
            f"--protocol gosip: not one of {', '.join(PARAMETERS)} (did you mean 'gossip'?)",
        ),
        (
            ("--protocol", "gossip", "--set", "perod_s=3"),
            "--set perod_s=3: unknown key (did you mean 'protocol.period_s'?)",
        ),
    ],
)
def test_bench_protocol_names_what_is_wrong(plexus: Plexus, options: tuple[str, ...], complaint: str) -> None:
    outcome = plexus("bench", "protocol", *options)
    assert (outcome.status, outcome.err) == (2, f"plexus: {complaint}\n")
