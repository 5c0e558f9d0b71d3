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
from plexus.files import write_text
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
    assert "Plexus 85.0 85.0 1.50 1.50 15.0 2.83× 2.83× 2.83×" in lines
    assert "± 63.5 % ± 63.5 % ± 6.35 ± 6.35 ± 63.5" in lines
    assert "unfinished (1.0 h)" in " ".join(lines)
    assert "Target: accuracy 60.0 % (the best that Gossip Learning became)." in " ".join(lines)


def test_compare_as_json(runs: Path, plexus: Any) -> None:
    status, out, _ = plexus(
        "compare", str(runs / "plexus"), str(runs / "gossip"), "--target", "0.7", "--json"
    )
    (found,) = json.loads(out)
    assert (status, found["setting"]) == (0, "Digits, 100 nodes, churn")
    comparison = found["comparison"]
    assert (comparison["metric"], comparison["target"], comparison["target_is"]) == ("accuracy", 0.7, "given")
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
    target = "0.712345678"
    status, printed, _ = plexus("report", str(runs), "-o", str(out), "--title", "Mine", "--target", target)
    assert (status, printed) == (0, f"{out}: 4 runs; figures and tables are in mine-files\n")
    assert "<title>Mine</title>" in out.read_text()
    assert f"plexus report {runs} --target {target} -o {out}" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["compare", "nowhere"], "plexus: nowhere: no such directory\n"),
        (["report", "nowhere"], "plexus: nowhere: no such directory\n"),
        (["report", ".", "-o", "x.pdf"], "plexus: x.pdf: a report is a page, and its name ends in .html\n"),
        (["compare", "."], "plexus: .: neither a run directory nor a folder with some\n"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], complaint: str, plexus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert plexus(*arguments) == (2, "", complaint)


HEADER = "simulated_s,round,accuracy,sent_bytes,training_s"
DAMAGE = {
    "cut off": ("result.json", '{"digest": "d1ge57", "rou', "Input data was truncated"),
    "empty": ("result.json", "", "Input data was truncated"),
    "not JSON": ("result.json", "<html>", "JSON is malformed: invalid character (byte 0)"),
    "not text": ("result.json", b'"\xff', "Input data was truncated"),
    "another object": ("result.json", "[]", "Expected `object`, got `array`"),
    "a wrong type": ("result.json", '{"digest": 1}', "Expected `str`, got `int` - at `$.digest`"),
    "no metric": ("result.json", '{"digest": "1"}', "Object missing required field `weights_hash`"),
    "no spec": ("versions.json", "{}", "does not say which spec was run"),
    "half a spec": ("spec.toml", "seed = 1", "Object missing required field `name`"),
    "no TOML": ("spec.toml", "nodes = ", "Invalid value (at end of document)"),
    "a short row": ("evaluations.csv", "simulated_s,round\n1\n", "line 2 has 1 cells, the header 2"),
    "no costs": ("evaluations.csv", "simulated_s,round,accuracy\n1,1,1\n", "no column sent_bytes"),
    "text": ("evaluations.csv", f"{HEADER}\n1,1,good,1,1\n", "accuracy is not a number in every row"),
    "rows lost": (
        "evaluations.csv",
        f"{HEADER}\n3600.0,0,0.1,1.0,1.0\n",
        "rows are missing: it does not end as result.json says",
    ),
    "all rows lost": ("evaluations.csv", "", "rows are missing: it does not end as result.json says"),
    "no metrics": ("evaluations.csv", "simulated_s,round\n1,1\n", "no column accuracy"),
    "nothing used": ("used.csv", "node,trainings\n0,1\n", "no column trainings_used"),
    "no such node": (
        "used.csv",
        "node,trainings,trainings_used,late_used\n9,1,1,0\n",
        "does not go with nodes.csv",
    ),
    "no round": ("rounds.csv", "simulated_s,online\n1,1\n", "no column round"),
}
"""What may have happened to a run: the file, what is in it now, and what is said of it."""


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_one_line_and_the_others_are_compared(damage: str, runs: Path, plexus: Any) -> None:
    name, content, complaint = DAMAGE[damage]
    file = runs / "gossip" / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    status, out, err = plexus("compare", str(runs), "--json")
    assert (status, err) == (0, f"plexus: left out a damaged run: {file}: {complaint}\n")
    arms = json.loads(out)[0]["comparison"]["arms"]
    assert [arm["label"] for arm in arms] == ["Plexus", "Gossip Learning, seed 2, unfinished (1.0 h)"]


def test_a_folder_in_the_place_of_a_file_is_damage_too(runs: Path, plexus: Any) -> None:
    file = runs / "gossip" / "result.json"
    file.unlink()
    file.mkdir()
    status, _, err = plexus("compare", str(runs))
    assert (status, err) == (0, f"plexus: left out a damaged run: {file}: Is a directory\n")
    spec = runs / "gossip" / "spec.toml"
    spec.unlink()
    status, _, err = plexus("compare", str(runs))
    assert (status, err) == (0, f"plexus: left out a damaged run: {spec}: No such file or directory\n")


def test_a_run_without_a_result_or_a_table_is_unfinished_not_damaged(runs: Path, plexus: Any) -> None:
    for name in ("result.json", "evaluations.csv"):
        (runs / "gossip" / name).unlink()
    status, out, err = plexus("compare", str(runs), "--json")
    labels = [arm["label"] for arm in json.loads(out)[0]["comparison"]["arms"]]
    assert (status, err) == (0, "")
    assert "Gossip Learning, seed 1, unfinished (0.0 h)" in labels


@pytest.mark.parametrize("command", ["compare", "report"])
def test_where_no_run_can_be_read_that_is_one_line(
    command: str, runs: Path, plexus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    (runs / "gossip" / "result.json").write_text("{")
    line = "gossip/result.json: Input data was truncated\n"
    assert plexus(command, "gossip") == (2, "", f"plexus: {line}")
    (runs / "killed" / "versions.json").write_text("")
    expected = f"plexus: of 2 runs none can be read; {line}"
    assert plexus(command, "gossip", "killed") == (2, "", expected)
    assert not (runs / "report.html").exists()


@pytest.mark.slow
def test_a_damaged_run_is_left_out_of_the_page(runs: Path, plexus: Any) -> None:
    (runs / "gossip" / "result.json").write_text("{")
    out = runs / "page.html"
    status, printed, err = plexus("report", str(runs), "-o", str(out))
    assert (status, printed) == (0, f"{out}: 3 runs; figures and tables are in page-files\n")
    assert err.count("\n") == 1 and "gossip/result.json" in err


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
def test_what_the_documentation_shows_works(runs: Path, plexus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (runs / "runs").mkdir()
    (runs / "gossip").rename(runs / "runs" / "mine")
    monkeypatch.chdir(runs)
    exec(compile(code, "docs/report.md", "exec"), {})
    assert "Accuracy over bytes" in Path("mine.html").read_text()
    options = set(re.findall(r"--[a-z]+", text))
    known = plexus("report", "--help")[1] + plexus("compare", "--help")[1] + plexus("run", "--help")[1]
    assert options <= set(re.findall(r"--[a-z]+", known))
