"""`plexus report` and `plexus compare` on run directories as they are found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plexus import cli
from plexus.metrics.files import write_json, write_text
from tests.report.runs import result
from tests.report.saving import save


@pytest.fixture
def plexus(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return command


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    save(tmp_path / "plexus" / "seed-1", result(), "plexus", [0.2, 0.8])
    save(tmp_path / "plexus" / "seed-2", result(), "plexus", [0.8, 0.9], 2)
    save(tmp_path / "gossip", result(), "gossip", [0.1, 0.2, 0.3, 0.6])
    save(tmp_path / "killed", None, "gossip", [0.7], 2)
    return tmp_path


def test_compare_prints_one_table(runs: Path, plexus: Any) -> None:
    status, out, _ = plexus("compare", str(runs))
    assert status == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "Digits, 100 nodes, churn" in lines
    assert "Plexus 85.0 1.50 1.50 15.0 2.67× 2.67× 2.67× 1, 2" in lines
    assert "± 7.1 % ± 0.71 ± 0.71 ± 7.1" in lines
    assert "unfinished (1.0 h)" in " ".join(lines)
    assert "Target: accuracy 60.0 % (the best that Gossip Learning became)." in " ".join(lines)


def test_compare_as_json(runs: Path, plexus: Any) -> None:
    status, out, _ = plexus(
        "compare", str(runs / "plexus"), str(runs / "gossip"), "--target", "0.7", "--json"
    )
    (found,) = json.loads(out)
    assert (status, found["setting"]) == (0, "Digits, 100 nodes, churn")
    comparison = found["comparison"]
    assert (comparison["metric"], comparison["target"], comparison["target_is"]) == (
        "accuracy",
        0.7,
        "given",
    )
    ours, gossip = comparison["arms"]
    assert ours["seeds"] == [1, 2]
    assert ours["costs"] == [
        {"tta_h": 2.0, "cta_gb": 2.0, "rta_h": 20.0},
        {"tta_h": 1.0, "cta_gb": 1.0, "rta_h": 10.0},
    ]
    assert gossip["costs"] == [None]


def test_a_run_given_twice_counts_once(runs: Path, plexus: Any) -> None:
    gossip = str(runs / "gossip")
    _, out, _ = plexus("compare", gossip, gossip, f"{gossip}/../gossip", "--json")
    assert json.loads(out)[0]["comparison"]["arms"][0]["seeds"] == [1]


def test_in_a_folder_only_the_newest_of_runs_done_again_counts(runs: Path, plexus: Any) -> None:
    gossip, earlier = runs / "gossip", runs / "gossip.1"
    save(earlier, result(digest="other"), "gossip", [0.1, 0.2, 0.3, 0.9])
    save(runs / "killed.1", None, "plexus", [0.7], 7)  # named so by somebody: of another spec
    versions = (gossip / "versions.json").read_text()
    write_text(earlier / "versions.json", versions)
    status, out, err = plexus("compare", str(runs), "--json")
    labels = [arm["label"] for arm in json.loads(out)[0]["comparison"]["arms"]]
    assert (status, len(labels), "Plexus, seed 7, unfinished (1.0 h)" in labels) == (0, 4, True)
    assert json.loads(out)[0]["comparison"]["target"] == 0.6
    assert err == f"plexus: left out 1 earlier run that was done again: {earlier}\n"
    status, _, err = plexus("compare", str(runs), str(earlier))
    assert (status, "gossip.1: same spec and seed as" in err) == (2, True)
    assert "left out" not in err


@pytest.mark.slow
def test_report_writes_the_page_where_it_is_wanted(runs: Path, plexus: Any) -> None:
    out = runs / "pages" / "mine.html"
    status, printed, _ = plexus("report", str(runs), "-o", str(out), "--title", "Mine")
    assert (status, printed) == (0, f"{out}: 4 runs; figures and tables are in mine-files\n")
    assert "<title>Mine</title>" in out.read_text()
    assert f"plexus report {runs} -o {out}" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["compare", "nowhere"], "plexus: nowhere: no such directory\n"),
        (["report", "nowhere"], "plexus: nowhere: no such directory\n"),
        (
            ["report", ".", "-o", "x.pdf"],
            "plexus: x.pdf: a report is a page, and its name ends in .html\n",
        ),
        (["compare", "."], "plexus: .: neither a run directory nor a folder with some\n"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    complaint: str,
    plexus: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plexus(*arguments) == (2, "", complaint)


def test_a_broken_file_is_named(runs: Path, plexus: Any) -> None:
    write_json(runs / "gossip" / "result.json", {"digest": 1})
    status, _, err = plexus("compare", str(runs))
    assert status == 2
    assert "gossip/result.json" in err
    write_text(runs / "gossip" / "evaluations.csv", "simulated_s,round\n1\n")
    (runs / "gossip" / "result.json").unlink()
    assert "gossip/evaluations.csv: line 2 has 1 cells" in plexus("compare", str(runs))[2]
    write_text(runs / "gossip" / "spec.toml", "nodes = \n")
    assert "gossip/spec.toml: Invalid value" in plexus("compare", str(runs))[2]


def test_comparing_needs_no_matplotlib_and_no_torch(runs: Path) -> None:
    code = f"""
import sys
sys.modules["matplotlib"] = sys.modules["torch"] = None
from plexus.cli import main
main(["compare", {str(runs)!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_what_the_documentation_shows_works(
    runs: Path, plexus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (runs / "runs").mkdir()
    (runs / "gossip").rename(runs / "runs" / "mine")
    monkeypatch.chdir(runs)
    exec(compile(code, "docs/report.md", "exec"), {})
    assert "Accuracy over bytes" in Path("mine.html").read_text()
    options = set(re.findall(r"--[a-z]+", text))
    known = (
        plexus("report", "--help")[1] + plexus("compare", "--help")[1] + plexus("run", "--help")[1]
    )
    assert options <= set(re.findall(r"--[a-z]+", known))
