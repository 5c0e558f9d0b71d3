"""Models that a run leaves: they say what they are, and give the reported accuracy without Plexus."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import plexus
from plexus.errors import PlexusError
from plexus.learn.layout import named_tensors
from plexus.learn.saved import about, fill, load_model, read_model, save_model
from plexus.learn.tasks import create_task
from plexus.learn.trainer import InlineEngine
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL, is_better, joined, metadata_of

SMALL = {"hours": 0.3, "nodes": 20}

WITHOUT_PLEXUS = """
import sys
from safetensors.torch import load_file
from sklearn.datasets import load_digits
import numpy, torch
ids = numpy.array(eval(sys.argv[2]))
digits = load_digits()
inputs = torch.from_numpy((digits.data[ids] / 16).astype("float32"))
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
net.load_state_dict(load_file(sys.argv[1]))
right = (net(inputs).argmax(1) == torch.from_numpy(digits.target[ids])).float().mean().item()
assert not any(name.startswith("plexus") for name in sys.modules)
print(right)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> plexus.api.LoadedRun:
    return plexus.simulate("quickstart", changes=SMALL, out=tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.slow
@pytest.mark.parametrize("name", [FINAL_MODEL, BEST_MODEL])
def test_a_script_without_plexus_finds_the_reported_accuracy(
    run: plexus.api.LoadedRun, name: str, tmp_path: Path
) -> None:
    assert run.result is not None
    said = run.result.metric.final if name == FINAL_MODEL else run.result.metric.best
    test = create_task("digits", nodes=20, seed=run.spec["seed"]).test
    arguments = [str(run.path / name), str(test.ids.tolist())]
    command = [sys.executable, "-c", WITHOUT_PLEXUS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert float(done.stdout) == pytest.approx(said, abs=1e-6)
    facts = metadata_of(run.path / name)
    assert float(facts["value"]) == said
    assert (facts["task"], facts["metric"], facts["digest"]) == ("digits", "accuracy", run.result.digest)
    if name == FINAL_MODEL:
        assert facts["weights"] == run.result.weights_hash
        assert int(facts["round"]) == run.result.rounds


@pytest.mark.slow
def test_the_modules_of_a_run(run: plexus.api.LoadedRun) -> None:
    task = create_task("digits", nodes=20, seed=run.spec["seed"])
    with torch.no_grad():
        found = (run.best_model()(task.test.inputs).argmax(1) == task.test.targets).float().mean()
    assert run.result is not None and float(found) == pytest.approx(run.result.metric.best, abs=1e-6)
    assert not run.model().training
    same = plexus.simulate("quickstart", changes=SMALL, out=run.path.with_name("again"))
    for name in (FINAL_MODEL, BEST_MODEL):
        assert (same.path / name).read_bytes() == (run.path / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["gossip", "dpsgd", "fedavg"])
def test_every_protocol_leaves_a_model(protocol: str, tmp_path: Path) -> None:
    changes = {"hours": 0.2, "nodes": 10, "protocol": {"name": protocol}, "evaluation.every_hours": 0.1}
    found = plexus.simulate("quickstart", changes=changes, out=tmp_path / "run")
    assert found.result is not None
    assert metadata_of(found.path / FINAL_MODEL)["weights"] == found.result.weights_hash
    assert float(metadata_of(found.path / BEST_MODEL)["value"]) == found.result.metric.best


@pytest.mark.slow
def test_a_run_starts_from_the_model_of_another(run: plexus.api.LoadedRun, tmp_path: Path) -> None:
    assert run.result is not None and run.result.metric.best is not None
    (tmp_path / "given.safetensors").write_bytes((run.path / BEST_MODEL).read_bytes())
    changes = {**SMALL, "hours": 0.05, "task.initial": "given.safetensors", "evaluation.every_rounds": 1}
    warm = plexus.simulate("quickstart", changes=changes, out=tmp_path / "warm", base_dir=tmp_path)
    cold = plexus.simulate("quickstart", changes={**changes, "task.initial": None}, out=tmp_path / "cold")
    assert warm.metrics["accuracy"][0] > cold.metrics["accuracy"][0] + 0.3
    assert warm.spec["task"]["initial"] == "given.safetensors" and "initial" not in cold.spec["task"]


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    task = create_task("digits", nodes=2, seed=1)
    tensors = dict(task.initial_model().named_parameters())
    for name, changed, complaint in (
        ("narrow", {**tensors, "0.bias": torch.zeros(3)}, r"the tensor 0.bias has shape \(3,\), the model's"),
        (
            "less",
            {k: v for k, v in tensors.items() if k != "0.bias"},
            "has no tensor 0.bias, which the model has",
        ),
        ("more", {**tensors, "x": torch.zeros(1)}, "has a tensor x, which the model has not"),
    ):
        save_model(tmp_path / name, changed, {})
        with pytest.raises(PlexusError, match=complaint) as caught:
            replace(task, initial=tmp_path / name).initial_model()
        assert str(tmp_path / name) in str(caught.value)
    (tmp_path / "junk").write_bytes(b"junk")
    for file, complaint in (("junk", "not a safetensors file"), ("none", "no such file")):
        with pytest.raises(PlexusError, match=complaint):
            replace(task, initial=tmp_path / file).initial_model()


def test_how_a_model_is_built_is_written_down_where_it_can_be(tmp_path: Path) -> None:
    task = create_task("digits", nodes=2, seed=1, hidden=3)
    assert json.loads(about(task)["model"])["args"] == [3]
    assert "model" not in about(replace(task, build_model=lambda: torch.nn.Linear(1, 1)))
    assert "model" not in about(replace(task, build_model=partial(torch.nn.Sequential, torch.nn.ReLU())))
    engine = InlineEngine(task)
    save_model(tmp_path / "m.safetensors", engine.layout.tensors(engine.initial), about(task))
    again = load_model(tmp_path / "m.safetensors", tmp_path)
    assert torch.equal(engine.layout.flatten(named_tensors(again)), engine.initial)
    save_model(tmp_path / "m.safetensors", {}, {})
    with pytest.raises(PlexusError, match="does not say how its model is built"):
        load_model(tmp_path / "m.safetensors", tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        "os:system",
        "builtins:exec",
        "torch:load",
        "torch.nn.modules.module:os",
        "plexus.files:write_bytes",
        "x",
    ],
)
def test_a_file_does_not_choose_what_code_runs(call: str, tmp_path: Path) -> None:
    """It may come from anybody."""
    trace = tmp_path / "trace"
    plan = json.dumps({"call": call, "args": [f"touch {trace}"], "kwargs": {}})
    save_model(tmp_path / "m.safetensors", {}, {"model": plan})
    with pytest.raises(PlexusError, match=f"its model is built by {call}, which is not in {tmp_path}, nor"):
        load_model(tmp_path / "m.safetensors", tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize("plan", ["{", "[]", "3", '{"call": 3}', '{"args": []}'])
def test_a_file_that_says_nothing_sensible_of_its_model_is_named(plan: str, tmp_path: Path) -> None:
    save_model(tmp_path / "m.safetensors", {}, {"model": plan})
    with pytest.raises(PlexusError, match=r"m\.safetensors: how its model is built cannot be read"):
        load_model(tmp_path / "m.safetensors", tmp_path)


def test_a_layer_of_torch_is_a_model(tmp_path: Path) -> None:
    task = replace(create_task("digits", nodes=2, seed=1), build_model=partial(torch.nn.Linear, 3, 2))
    save_model(tmp_path / "m.safetensors", dict(task.initial_model().named_parameters()), about(task))
    assert isinstance(load_model(tmp_path / "m.safetensors", tmp_path), torch.nn.Linear)


def test_files_are_joined_in_one_way(tmp_path: Path) -> None:
    first = {"a": torch.arange(3.0), "n": torch.tensor(3), "b": torch.tensor([True, False, True])}
    later = {"a": torch.ones(3), "h": torch.ones(5, dtype=torch.float16)}
    for name, tensors in (("x", first), ("y", later)):
        save_file(tensors, tmp_path / name, {"format": "pt"})
    parts = [(tmp_path / name).read_bytes() for name in "xy"]
    both = joined({"z": "1", "a": "ü"}, *parts)
    assert both == joined({"a": "ü", "z": "1"}, memoryview(parts[0]), parts[1])
    (tmp_path / "both").write_bytes(both)
    found = load_file(tmp_path / "both")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in {**first, **later}.items()
    }
    assert metadata_of(tmp_path / "both") == {"z": "1", "a": "ü"} == read_model(tmp_path / "both")[1]


@pytest.mark.parametrize(("higher", "worse", "better"), [("true", 0.5, 0.7), ("false", 0.7, 0.5)])
def test_only_a_better_model_is_better(higher: str, worse: float, better: float, tmp_path: Path) -> None:
    file = tmp_path / "m"
    assert is_better(worse, file)
    save_model(file, {}, {"value": "0.6", "higher_is_better": higher})
    assert [is_better(value, file) for value in (worse, 0.6, better)] == [False, False, True]


def test_tied_weights_and_buffers_come_back() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(4, 4)
            self.two = torch.nn.Linear(4, 4)
            self.two.weight = self.one.weight
            self.norm = torch.nn.BatchNorm1d(4)

    source, target = Tied(), Tied()
    source.norm.running_mean.fill_(3.0)  # type: ignore[union-attr,operator]
    from plexus.learn.layout import named_tensors

    fill(target, {name: each.detach().clone() for name, each in named_tensors(source).items()}, "here")
    assert torch.equal(target.two.weight, source.one.weight)
    assert torch.equal(target.norm.running_mean, source.norm.running_mean)  # type: ignore[arg-type]
