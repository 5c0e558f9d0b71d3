"""What a session keeps for whoever looks closely: true, bounded, and without influence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plexus.experiment import recording
from plexus.experiment.recording import Recording
from plexus.experiment.simulation import simulate
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.membership import Membership
from plexus.protocol.registry import SERVERS
from plexus.runs.recorder import Recorder
from plexus.runs.result import Believed
from plexus.runs.run import Run, load_run
from plexus.runs.tables import read
from plexus.sim.runtime import Runtime
from plexus.sim.sharing import Flow
from plexus.spec.experiment import parse_spec
from plexus.traces.build import build_world

SPEC = """
name = "watched"
nodes = 40
hours = 1
[protocol]
name = "{protocol}"
[task]
name = "digits"
[evaluation]
every_rounds = 1000
every_hours = 10
"""
VIEWS = """
name = "views"
nodes = 120
hours = 3
[protocol]
name = "plexus"
sample_size = 6
[task]
name = "untrained"
model_bytes = 50000
"""
PARTS = ("sampling_s", "transfer_s", "training_s", "aggregation_s")


def session(out: Path, protocol: str) -> Run:
    spec = parse_spec(SPEC.format(protocol=protocol), "watched.toml")
    simulate(spec, Path(), out)
    return load_run(out)


@pytest.fixture(scope="module", params=["plexus", "fedavg", "fedbuff", "teleportation", "gossip"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return session(tmp_path_factory.mktemp("watched") / "run", request.param)


def test_every_node_has_a_city_with_coordinates(run: Run) -> None:
    nodes = run.detail("nodes")
    servers = 1 if run.spec["protocol"]["name"] in SERVERS else 0
    assert nodes["node"].tolist() == list(range(40 + servers))
    assert np.all(np.abs(nodes["latitude"]) <= 90) and np.all(np.abs(nodes["longitude"]) <= 180)
    assert len(set(nodes["city"])) >= 40
    assert np.isfinite(nodes["training_s"][:40]).all()


def test_the_phases_of_a_round_add_up_to_its_duration(run: Run) -> None:
    phases, rounds = run.detail("phases"), run.tables["rounds"]
    if run.spec["protocol"]["name"] in ("gossip", "teleportation"):
        assert phases == {}
        return
    total_s = sum(phases[part] for part in PARTS)
    assert total_s == pytest.approx(phases["simulated_s"] - phases["began_s"], abs=0.01)
    assert min(phases[part].min() for part in PARTS) >= 0
    assert phases["training_s"].max() > 1
    assert len(phases["round"]) > 0.9 * len(rounds["round"]) > 20
    trained_s = run.detail("nodes")["training_s"][phases["participant"]]
    assert phases["training_s"] == pytest.approx(trained_s, abs=0.01)


def test_presence_agrees_with_the_count_of_nodes_online(run: Run) -> None:
    presence, online = run.detail("presence"), run.tables["online"]
    change = np.where(presence["online"], 1, -1) * (presence["node"] < 40)
    for at_s, count in zip(online["simulated_s"], online["online"], strict=True):
        assert change[presence["simulated_s"] <= at_s].sum() == count


def test_transfers_and_trainings_are_those_of_the_accounts(run: Run) -> None:
    assert run.result is not None
    transfers, trainings = run.detail("transfers"), run.detail("trainings")
    assert np.all(transfers["began_s"] <= transfers["simulated_s"])
    assert np.all(np.diff(transfers["simulated_s"]) >= 0)
    assert len(transfers["source"]) <= run.result.messages["model"].count
    kinds = {name: {"train", "aggregate"} for name in ("plexus", *SERVERS)}
    assert set(transfers["kind"]) == kinds.get(run.spec["protocol"]["name"], {"exchange"})
    spent_s = (trainings["simulated_s"] - trainings["began_s"]).sum()
    # What is still being trained at the end is in neither.
    assert spent_s == pytest.approx(run.result.training_s, rel=1e-3)


def test_the_trainings_used_are_those_that_the_final_model_needed(run: Run) -> None:
    """It is evaluated once, at the end: nothing else had to be computed."""
    assert run.result is not None
    used, trainings = run.detail("used"), run.detail("trainings")
    if run.spec["protocol"]["name"] in ("gossip", "teleportation"):
        assert used == {} and run.result.used is None and run.result.lineage is None
        return
    assert run.result.used is not None and run.result.lineage is not None
    assert used["node"].tolist() == list(range(40))
    finished = np.bincount(trainings["node"][trainings["completed"]], minlength=40)
    assert used["trainings"].tolist() == finished.tolist()
    assert (used["trainings_used"] <= used["trainings"]).all() and not used["late_used"].any()
    behind = used["trainings_used"].sum()
    assert behind == run.result.lineage.trainings == run.result.trainings.computed > 100
    assert run.result.used.share == behind / finished.sum() < 1
    assert run.result.used.never_used_nodes == ((finished > 0) & (used["trainings_used"] == 0)).sum()


def test_without_learning_the_same_is_used(run: Run, tmp_path: Path) -> None:
    """Only the time of a training must be the same, and the size of a model."""
    assert run.result is not None
    name = run.spec["protocol"]["name"]
    task = 'task={name="untrained", model_bytes=19520}'
    spec = parse_spec(SPEC.format(protocol=name), "watched.toml", (task,))
    untrained = simulate(spec, Path(), tmp_path / "run")
    assert untrained.digest == run.result.digest
    assert (untrained.used, untrained.lineage) == (run.result.used, run.result.lineage)


def test_states_and_traffic_are_taken_now_and_then(run: Run) -> None:
    states, traffic = run.detail("states"), run.detail("traffic")
    assert len(traffic["simulated_s"]) == len(run.tables["online"]["simulated_s"])
    assert np.all(np.diff(traffic["model_bytes"]) >= 0)
    at_s, counts = np.unique(states["simulated_s"], return_counts=True)
    assert len(at_s) >= 10 and len(set(counts)) == 1
    assert states["sent_bytes"].max() > 0


def test_watching_changes_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.result is not None
    whole = Runtime.__init__

    def unobserved(self: Runtime, setting: Any, nodes: Any, observe: Any, observer: Any) -> None:
        whole(self, setting, nodes, observe, None)

    monkeypatch.setattr(Runtime, "__init__", unobserved)
    unwatched = session(tmp_path / "run", run.spec["protocol"]["name"])
    assert unwatched.result is not None
    assert unwatched.detail("transfers") == {}
    assert unwatched.result.digest == run.result.digest
    assert unwatched.result.weights_hash == run.result.weights_hash


def test_more_than_the_tables_hold_is_thinned_over_the_whole_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_ROWS", {"transfers": 2000, "trainings": 1000})
    recorder = Recorder(tmp_path)
    watch = Recording(recorder, until_s=1000.0)
    body = SimpleNamespace(round=1)
    for step in range(10_000):
        flow = Flow(0, 1, 10.0, SimpleNamespace(body=body))
        watch.transfer_began(step / 10, flow)
        watch.transfer_ended(step / 10, flow, step / 10)
    recorder.flush()
    kept = read(tmp_path / "transfers.csv")["simulated_s"]
    assert len(kept) == 2000
    counts, _ = np.histogram(kept, bins=10, range=(0, 1000))
    assert counts.tolist() == [200] * 10


def test_who_listens_to_a_run_is_not_told_of_details(tmp_path: Path) -> None:
    recorder, heard = Recorder(tmp_path), []
    recorder.listen = lambda table, row: heard.append(table)
    Recording(recorder, until_s=1000.0).presence(1.0, 2, online=True)
    recorder.record("online", simulated_s=1.0, online=1)
    assert heard == ["online"]
    recorder.flush()
    assert read(tmp_path / "presence.csv")["node"].tolist() == [2]


def watched(out: Path, *overrides: str) -> Run:
    simulate(parse_spec(VIEWS, "views.toml", overrides), Path(), out)
    return load_run(out)


def test_views_follow_who_is_online(tmp_path: Path) -> None:
    found = watched(tmp_path / "a")
    views = found.tables["views"]
    assert views["simulated_s"].tolist() == [300.0 * step for step in range(36)]
    assert views["online"].tolist() == found.tables["online"]["online"].tolist()
    assert (views["min_view"] <= views["mean_view"]).all()
    assert (views["mean_view"] <= views["max_view"]).all()
    spec = parse_spec(VIEWS, "views.toml")
    world = build_world(spec.traces, spec.nodes, spec.seed, Path())
    assert views["online"][0] == np.count_nonzero(world.availability.online_at(0.0))
    assert len(set(views["online"].tolist())) > 3, "there is churn"
    wrong = np.abs(views["mean_view"] - views["online"]) / views["online"]
    assert wrong.mean() < 0.2


@pytest.mark.parametrize(("protocol", "has_views"), [("gossip", True), ("dpsgd", False)])
def test_protocols_without_views_have_no_table_of_them(
    protocol: str, has_views: bool, tmp_path: Path
) -> None:
    found = watched(tmp_path / "a", f'protocol={{name="{protocol}"}}', "hours=0.5")
    assert bool(found.tables["views"]) is has_views


def test_how_many_are_believed_online_is_a_mean_of_what_was_seen(tmp_path: Path) -> None:
    """After the first hour, in which views fill; of a session that is no longer, over all of it."""
    spec = parse_spec(VIEWS, "views.toml")
    found = simulate(spec, Path(), tmp_path / "long").membership
    views = load_run(tmp_path / "long").tables["views"]
    late = views["simulated_s"] > 3600
    assert found is not None and late.any() and not late.all()
    assert found.believed_online == pytest.approx(views["mean_view"][late].mean())
    assert found.really_online == pytest.approx(views["online"][late].mean())
    assert found.ratio == pytest.approx(found.believed_online / found.really_online)
    assert found.aggregators_ratio is not None and 0.3 < found.aggregators_ratio < 3
    short = simulate(parse_spec(VIEWS, "views.toml", ["hours=0.5"]), Path(), tmp_path / "short").membership
    views = load_run(tmp_path / "short").tables["views"]
    assert short is not None and short.believed_online == pytest.approx(views["mean_view"].mean())
    fedavg = parse_spec(VIEWS, "views.toml", ["hours=0.5", 'protocol={name="fedavg"}'])
    assert simulate(fedavg, Path(), tmp_path / "fedavg").membership is None


def test_views_of_the_vanished_count_as_believed(tmp_path: Path) -> None:
    """Two looks and one aggregator, by hand."""

    def held(online: int) -> SimpleNamespace:
        membership = Membership.__new__(Membership)
        membership.view = SimpleNamespace(online_count=lambda: online)  # type: ignore[assignment]
        return SimpleNamespace(membership=membership)

    nodes = [held(6), held(8), held(7), held(99)]
    accounts = SimpleNamespace(messages={}, training_s=[0.0])
    runtime: Any = SimpleNamespace(
        nodes=nodes, online=[True] * 3 + [False], online_count=3, accounts=accounts
    )
    kept = Recording(Recorder(tmp_path), 10_000.0)
    kept._next_states_s = 1e9
    assert kept.believed() is None
    kept.look(0.0, runtime)
    assert kept.believed() == Believed(7.0, 3.0, 7 / 3, None)
    runtime.online = [False, True, False, False]
    runtime.online_count = 1
    kept.look(3900.0, runtime)
    done = AggregationCompleted(
        round=2, ordinal=2, model=None, models=1, participants=1, timed_out=False, waited_s=0.0
    )
    kept.on_fact(3950.0, 0, done, runtime)
    assert kept.believed() == Believed(8.0, 1.0, 8.0, 6.0), "the first hour is left out"


LIAR = """
name = "liar"
nodes = 8
hours = 0.3
attackers = [{ behaviour = "far-round", nodes = [2] }]
[protocol]
name = "plexus"
sample_size = 5
signed_views = true
[task]
name = "untrained"
model_bytes = 50000
[traces]
availability = "none"
"""


def test_the_result_says_from_whom_what_was_refused(tmp_path: Path) -> None:
    result = simulate(parse_spec(LIAR, "liar.toml"), Path(), tmp_path / "run")
    first = result.suspects[0]
    assert first.node == "2" and first.times > 1 and first.peers > 1
    assert "far ahead" in first.reason or "nobody else knows" in first.reason
