"""Faults of a spec in a whole run, from the table to what the run directory says of them; data by speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.experiment.learning import Machinery, set_up
from plexus.experiment.progress import Tick
from plexus.experiment.simulation import simulate
from plexus.learn.graph import LazyModels
from plexus.runs.result import Result
from plexus.runs.run import load_run
from plexus.spec.experiment import parse_spec
from plexus.traces.build import build_world

SPEC = """\
name = "cut"
nodes = 12
hours = 0.5
[protocol]
name = "plexus"
sample_size = 5
[task]
name = "untrained"
model_bytes = 50000
[traces]
availability = "none"
[[faults]]
kind = "partition"
from_h = 0.1
to_h = 0.3
nodes = [7, 2]
[[faults]]
kind = "silence"
from_h = 0.2
to_h = 0.4
nodes = 0.25
[[faults]]
kind = "slow-link"
from_h = 0.3
to_h = 0.5
nodes = "aggregators"
factor = 0.01
"""


def play(out: Path, *changes: str, seed: int = 1) -> Result:
    return simulate(parse_spec(SPEC, "cut.toml", changes, seed), Path(), out)


def test_a_run_says_whom_its_faults_hit_and_repeats_itself(tmp_path: Path) -> None:
    first = play(tmp_path / "first")
    assert first.digest == play(tmp_path / "again").digest
    assert first.digest != play(tmp_path / "without", "faults=[]").digest
    faults = load_run(tmp_path / "first").detail("faults")
    hit = {kind: faults["node"][faults["kind"] == kind].tolist() for kind in np.unique(faults["kind"])}
    assert hit["partition"] == [2, 7]
    assert len(hit["silence"]) == 3
    assert len(hit["slow-link"]) > 1, "one aggregator after the other"
    began_s = {kind: faults["simulated_s"][faults["kind"] == kind].min() for kind in hit}
    assert (began_s["partition"], began_s["silence"]) == (360.0, 720.0)
    assert sorted(set(faults["until_s"])) == [1080.0, 1440.0, 1800.0]
    play(tmp_path / "other", seed=2)
    other = load_run(tmp_path / "other").detail("faults")
    assert other["node"][other["kind"] == "silence"].tolist() != hit["silence"]
    assert load_run(tmp_path / "without").detail("faults") == {}


def test_a_run_says_whose_work_survived_its_cuts(tmp_path: Path) -> None:
    """Who aggregated when is in rounds.csv."""
    (cut,) = play(tmp_path / "cut").cuts
    rounds = load_run(tmp_path / "cut").rounds
    during = (rounds["simulated_s"] >= 360) & (rounds["simulated_s"] <= 1080)
    aside = np.isin(rounds["aggregator"], [2, 7])
    assert (cut.from_h, cut.to_h, cut.cut_nodes) == (0.1, 0.3, 2)
    assert cut.others_aggregates == (during & ~aside).sum() > 5
    assert cut.cut_aggregates == (during & aside).sum()
    assert 0 <= cut.cut_survived <= cut.cut_aggregates
    assert 0 <= cut.others_survived <= cut.others_aggregates
    assert cut.cut_survived + cut.others_survived > 0, "the final model comes from somewhere"
    assert play(tmp_path / "whole", "faults=[]").cuts == ()
    whoever = 'faults=[{kind="partition",from_h=0.1,to_h=0.3,nodes="aggregators"}]'
    (each,) = play(tmp_path / "aggregators", whoever).cuts
    hit = load_run(tmp_path / "aggregators").detail("faults")
    assert each.cut_nodes == len(set(hit["node"])) > 0
    later = 'faults=[{kind="partition",from_h=0.4,to_h=0.5,nodes=[2]}]'
    spec = parse_spec(SPEC, "cut.toml", [later])

    def stop(at: Tick) -> None:
        if at.simulated_s >= 600:
            raise KeyboardInterrupt

    assert simulate(spec, Path(), tmp_path / "stopped", stop).cuts == (), "it never began"


def test_who_has_no_aggregators_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match=r"^faults\[2\]\.nodes: protocol gossip has no aggregators$"):
        play(tmp_path / "gossip", 'protocol={name="gossip"}')


def test_slow_devices_own_the_upper_classes() -> None:
    task = 'task={name="digits", partition="by-speed"}'
    spec = parse_spec(SPEC, "cut.toml", [task, "faults=[]"])
    world = build_world(spec.traces, spec.nodes, spec.seed, Path())
    models = set_up(spec, Path(), Machinery(engine="inline"), world).models
    assert isinstance(models, LazyModels)
    learned = models.task
    labels = learned.train.targets.numpy()
    slowest_first = sorted(range(12), key=lambda node: -world.devices[node].compute_ms_per_sample)
    owned = [set(labels[learned.parts[node]].tolist()) for node in slowest_first]
    assert set.union(*owned[:6]) == {5, 6, 7, 8, 9}
    assert set.union(*owned[6:]) == {0, 1, 2, 3, 4}
