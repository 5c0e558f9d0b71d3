"""float16 and int8 on the wire: how large, how exact, the same again; simulated and live alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import plexus
from plexus.learn.aggregation import robust
from plexus.learn.engines import create_engine
from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.layout import Layout, Packing, named_tensors, names_of
from plexus.learn.rules import ClipRule, MeanRule, MultiKrumRule, NnmTrimmedRule, Rule, TrimmedMeanRule
from plexus.learn.tasks import create_task
from plexus.live.aggregator import Spool, sum_of
from plexus.live.models import ModelLayout
from plexus.live.state import with_names
from plexus.protocol.api import Change
from plexus.rng import array_stream
from plexus.runs.encoding import BLOCK, CHUNK, Wire, quantised, restored, rounded, steps


@pytest.mark.parametrize("count", [1, 255, 256, 257, 4810, CHUNK, CHUNK + 1, 3 * CHUNK + 300])
def test_no_number_is_off_by_more_than_half_a_step_and_none_on_average(count: int) -> None:
    rng = array_stream(1, "values")
    values = (rng.standard_normal(count) * rng.choice([1e-6, 1, 1e4], count)).astype(np.float32)
    found, scales = quantised(values, array_stream(2, "wire"))
    assert found.nbytes + scales.nbytes == count + 2 * (2 - -count // BLOCK)
    again = restored(found, scales)
    each = np.repeat(steps(scales), BLOCK)[:count]
    assert (np.abs(again - values) <= 0.501 * each).all()
    for same, other in zip((found, scales), quantised(values, array_stream(2, "wire")), strict=True):
        assert np.array_equal(same, other)
    many = np.mean([restored(*quantised(values, array_stream(n, "wire"))) for n in range(400)], axis=0)
    assert (np.abs(many - values) <= 0.25 * each + 1e-12).all()


def test_zeros_and_tiny_numbers_are_no_error() -> None:
    values = np.zeros(600, np.float32)
    values[300] = -7.5
    again = rounded(values, "int8", array_stream(1, "wire"))
    assert np.abs(again - values).max() < 0.51 * 7.5 / 127
    own = slice(300 // BLOCK * BLOCK, (300 // BLOCK + 1) * BLOCK)
    assert np.count_nonzero(again) == np.count_nonzero(again[own]) > 1
    assert rounded(values, "float32", array_stream(1, "wire")) is values
    tiny = np.array([1e-44, -1e-42, 1e-38], np.float32)  # steps between them would be no normal numbers
    assert np.abs(rounded(tiny, "int8", array_stream(1, "wire"))).max() < 1e-37
    huge = np.array([3.4e38, -3.4e38, 1.0], np.float32)
    assert np.isfinite(rounded(huge, "int8", array_stream(1, "wire"))).all()
    assert np.isinf(rounded(np.array([1e5], np.float32), "float16", array_stream(1, "wire"))).all()


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(inputs))  # type: ignore[no-any-return]


class Masked(Counting):
    """With statistics of inputs that are very small, and very large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.norm.num_batches_tracked.fill_(12345)  # type: ignore[operator,union-attr]
        self.norm.running_var = torch.logspace(-6, 6, 10)


@pytest.mark.parametrize("wire", ["float32", "float16", "int8"])
def test_what_is_packed_is_what_the_receiver_has(wire: Wire, tmp_path: Path) -> None:
    """Also what is not trained, as it is, and what a peer makes of it for its owner."""
    module = Masked()
    layout = Layout.of(module)
    packing, vector = Packing(layout, wire, "f" * 32), layout.flatten(named_tensors(module))
    data = packing.encode(vector, array_stream(1, "wire"))
    arrived = packing.decode(data)
    assert torch.equal(arrived, packing.rounded(vector, array_stream(1, "wire")))
    assert torch.allclose(arrived, vector, atol=0.02)
    assert all(torch.equal(layout.tensors(arrived)[name], tensor) for name, tensor in module.named_buffers())
    if wire != "float32":
        names = names_of(layout, wire)["tensors"]
        (tmp_path / "m").write_bytes(with_names(memoryview(data), names))
        for name, tensor in load_file(tmp_path / "m").items():
            assert torch.equal(tensor, layout.tensors(arrived)[name])


@pytest.mark.parametrize(("wire", "factor"), [("float16", 1.98), ("int8", 3.85)])
@pytest.mark.parametrize("name", ["digits", "femnist_cnn", "movielens"])
def test_models_are_that_much_smaller(wire: Wire, factor: float, name: str) -> None:
    from plexus.learn.networks import MatrixFactorisation, femnist_cnn
    from plexus.learn.tasks.digits import perceptron

    builders = {
        "digits": lambda: perceptron(64),
        "femnist_cnn": lambda: femnist_cnn(10),
        "movielens": lambda: MatrixFactorisation(610, 9724, 20, 0.05),
    }
    layout = Layout.of(builders[name]())
    sizes = [
        len(Packing(layout, kind, "").encode(torch.zeros(layout.size), array_stream(1, "wire")))
        for kind in ("float32", wire)
    ]
    assert sizes[0] / sizes[1] >= factor


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 1, 6)])
def test_a_live_mean_of_bytes_is_the_mean_of_what_they_stand_for(weights: tuple[int, ...]) -> None:
    layout = Layout.of(Counting())
    packing = Packing(layout, "int8")
    vectors = [torch.randn(layout.size) for _ in weights]
    data = [packing.encode(each, array_stream(n, "wire")) for n, each in enumerate(vectors)]
    live = ModelLayout(data[0])
    assert live.is_quantised
    total = sum_of(live, 7)
    for each, weight in zip(data, weights, strict=True):
        assert live.flaw(memoryview(each)) is None
        total.add(memoryview(each), weight, owned=True)
    mean = total.mean()
    assert live.flaw(mean) is None
    decoded = [packing.decode(each) for each in data]
    exact = sum(v * w for v, w in zip(decoded, weights, strict=True)) / sum(weights)
    found = packing.decode(bytes(mean))
    assert torch.allclose(found[:-1], exact[:-1], atol=0.05)  # type: ignore[index]
    assert found[-1] == torch.round(exact[-1])  # type: ignore[index]
    flawed = bytearray(data[0])
    live.named(memoryview(flawed))["scales"][2] = 0x7F80  # infinite
    assert live.flaw(memoryview(flawed)) == "it has numbers that are not finite"
    live.named(memoryview(flawed))["scales"][2] = 0x7CF1  # finite, but 127 times as much is not
    assert live.flaw(memoryview(flawed)) == "it has numbers that are not finite"


@pytest.mark.parametrize("far", [slice(-1), slice(-21, -1)], ids=["all", "statistics"])
@pytest.mark.parametrize("wire", ["float16", "int8"])
def test_robust_rules_see_what_bytes_stand_for_and_counters_are_no_distance(
    wire: Wire, far: slice, tmp_path: Path
) -> None:
    layout = Layout.of(Counting())
    packing, rule = Packing(layout, wire), MultiKrumRule()
    vectors = [torch.randn(layout.size) for _ in range(7)]
    for count, vector in enumerate(vectors):
        vector[-1] = 10_000 * count
    vectors[3][far] *= 100  # what is far away: left out
    data = [packing.encode(each, array_stream(n, "wire")) for n, each in enumerate(vectors)]
    live = ModelLayout(data[0])
    spool = Spool(live, rule, tmp_path, 1)
    for each in data:
        spool.add(memoryview(each), 1, owned=False)
    wanted = robust(rule, layout, [packing.decode(each) for each in data])
    assert wanted[:-1].abs().max() < 10
    found = packing.decode(bytes(spool.mean()))
    assert torch.allclose(found[:-1], wanted[:-1], atol=0.05 if wire == "int8" else 1e-3)
    assert found[-1] == torch.round(wanted[-1])


@pytest.mark.slow
def test_what_is_learned_is_rounded_too_and_runs_repeat(tmp_path: Path) -> None:
    runs = {}
    changes = {"hours": 0.3, "nodes": 20}
    for wire in ("float32", "float16", "int8"):
        for again in range(2):
            out = tmp_path / f"{wire}{again}"
            runs[wire, again] = plexus.simulate(
                "quickstart", changes={**changes, "protocol.wire": wire}, out=out
            )
        first, second = (runs[wire, again].result for again in range(2))
        assert first is not None and second is not None
        assert (first.digest, first.weights_hash) == (second.digest, second.weights_hash)
    results = {wire: runs[wire, 0].result for wire in ("float32", "float16", "int8")}
    assert len({result.weights_hash for result in results.values() if result}) == 3
    best = [result.metric.best for result in results.values() if result]
    assert max(best) - min(best) < 0.1
    sent = [sum(t.bytes for t in r.messages.values()) / r.rounds for r in results.values() if r]
    assert sent[0] > 1.5 * sent[1] > 2.2 * sent[2]
    assert "wire" not in runs["float32", 0].spec["protocol"]


@pytest.mark.parametrize("rule", [MeanRule(), TrimmedMeanRule(), NnmTrimmedRule(), ClipRule()], ids=repr)
@pytest.mark.parametrize("wire", ["float32", "float16", "int8"])
def test_a_late_change_is_sent_as_models_are(wire: Wire, rule: Rule, tmp_path: Path) -> None:
    """Without what stays with nodes; and live peers make of it what a simulation does."""
    task = replace(create_task("digits", 4, 1), local=("2.*",))
    engine, _ = create_engine("inline", task)
    models, packing = LazyModels(task, engine, rule, wire=wire), Packing(engine.layout, wire)
    base = models.initial()
    first = [models.train(base, node, 1) for node in range(3)]
    changes = [Change(models.train(base, 3, 1), base), Change(models.train(first[0], 0, 2), first[0])]
    made, plain = models.mean(first, [1] * 3, changes, [1] * 2), models.mean(first, [1] * 3)
    late = [each for change in changes for each in (change.trained, change.base)]
    models._force([made, plain, *first, *late])
    assert {len(model.vector()) for model in (made, *late)} == {engine.layout.shared_size}

    def sent(model: Expression) -> memoryview:
        return memoryview(packing.encode(model.vector(), array_stream(1, "wire", model.number)))

    live = ModelLayout(sent(base))
    begin = partial(sum_of, live) if isinstance(rule, MeanRule) else partial(Spool, live, rule, tmp_path)
    total, changed = (begin(2, is_change) for is_change in (False, True))
    for model in first:
        total.add(sent(model), 1, owned=False)
    for change in changes:
        difference = live.difference(sent(change.trained), sent(change.base))
        assert live.flaw(difference) is None and difference.nbytes == live.size_bytes
        changed.add(difference, 1, owned=False)
    found = packing.decode(bytes(total.mean(changed)))  # type: ignore[arg-type]
    moved, off = made.vector() - plain.vector(), found - made.vector()
    assert off.abs().max() < (0.002 if wire == "int8" else 1e-6)  # a step, where means are rounded by chance
    # Here all that travels is rounded twice: when it was made, and when it is sent.
    assert off.abs().mean() < (0.5 if wire == "int8" else 0.3) * moved.abs().mean()


def test_every_model_is_rounded_by_itself() -> None:
    task = replace(create_task("digits", 4, 1), local_steps=1)
    engine, _ = create_engine("inline", task)
    models = LazyModels(task, engine, wire="int8")
    one, other = (models.train(models.initial(), 0, 1) for _ in range(2))
    mean = models.mean([one, other], [1, 1])
    models._force([mean])
    assert not torch.equal(one.vector(), other.vector())
    assert torch.allclose(one.vector(), other.vector(), atol=0.01)
