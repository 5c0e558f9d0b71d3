"""`plexus run` with nothing left out: devices, protocol, training, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus import cli
from plexus.runs.run import load_run

SPEC = """\
name = "real"
nodes = 20
hours = 0.5
[protocol]
sample_size = 4
[task]
name = "digits"
[traces]
availability = "none"
"""


@pytest.mark.slow
def test_the_same_spec_and_seed_give_the_same_result_and_another_seed_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("real.toml").write_text(SPEC)

    def run(*options: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["run", "real.toml", "--json", "--quiet", *options])
        assert stop.value.code == 0
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    first, again, other = run("--out", "a"), run("--out", "b"), run("--seed", "2", "--out", "c")
    fingerprints = [(each["digest"], each["weights_hash"]) for each in (first, again, other)]
    assert fingerprints[0] == fingerprints[1]
    assert not set(fingerprints[0]) & set(fingerprints[2])

    tables = load_run("a").tables
    assert tables["evaluations"]["accuracy"].max() == first["metric"]["best"]
    assert tables["evaluations"]["accuracy"][-1] == first["metric"]["final"]
    assert tables["rounds"]["round"].max() == first["rounds"] > 10
    assert set(tables["online"]["online"]) == {20}
    assert tables.pop("node_evaluations") == {}, "there is one model, not one a node"
    for table in tables.values():
        assert np.all(np.diff(table["simulated_s"]) >= 0)
    resolved = run("--out", "d", *("--set", "seed=1"))
    assert resolved["digest"] == first["digest"]
    assert Path("a/spec.toml").read_text() == Path("d/spec.toml").read_text()


def test_a_forced_run_that_cannot_begin_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("real.toml").write_text(SPEC.replace("0.5", "0.1"))

    def run(*options: str) -> object:
        with pytest.raises(SystemExit) as stop:
            cli.main(["run", "real.toml", "--quiet", "--engine", "inline", "--out", "a", "--force", *options])
        return stop.value.code

    assert run() == 0
    before = {each.name: each.read_bytes() for each in Path("a").iterdir()}
    for wrong in ("traces.availability=nowhere.csv", "session.until=auc >= 0.9"):
        assert run("--set", wrong) == 2
        assert {each.name: each.read_bytes() for each in Path("a").iterdir()} == before, wrong
    assert run("--seed", "2") == 0
    assert load_run("a").spec["seed"] == 2
    assert before.keys() == {each.name for each in Path("a").iterdir()}
