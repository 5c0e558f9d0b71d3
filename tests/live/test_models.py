"""Models as bytes: what is accepted from others, and means that need the memory of one model."""

from __future__ import annotations

import asyncio
import gc
import resource
import weakref
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load, save

from plexus.errors import PlexusError
from plexus.learn import aggregation
from plexus.learn.aggregation import Aggregation, robust
from plexus.learn.layout import Layout
from plexus.learn.rules import RULES, MeanRule, MedianRule, Rule
from plexus.live.aggregator import Aggregator, RunningSum, Spool
from plexus.live.models import LiveModel, ModelLayout, fits, seal
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.protocol.api import Aggregate, Collect
from tests.live.disks import small_disk


def encoded(seed: int, **extra: torch.Tensor) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return bytes(save({**tensors, **extra}))


SHAPES: dict[str, tuple[int, ...]] = {"weight": (7, 3), "bias": (5,), "scale": ()}


def owned(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


@pytest.mark.parametrize("combine", [aggregation.mean, aggregation.weighted_mean])
def test_the_running_mean_is_the_mean_that_the_simulator_computes(combine: Aggregation) -> None:
    models, samples = [encoded(seed) for seed in range(5)], [3, 1, 4, 1, 5]
    total = RunningSum(ModelLayout(models[0]))
    for model, count in zip(models, samples, strict=True):
        total.add(owned(model), 1 if combine is aggregation.mean else count, owned=True)
    found = load(bytes(total.mean()))
    for name in SHAPES:
        wanted = combine([load(model)[name].reshape(-1) for model in models], samples)
        torch.testing.assert_close(found[name].reshape(-1), wanted, rtol=1e-6, atol=1e-7)


def test_the_plain_mean_has_the_same_bits_as_the_simulators() -> None:
    models = [encoded(seed) for seed in range(7)]
    total = RunningSum(ModelLayout(models[0]))
    for model in models:
        total.add(owned(model), 1, owned=True)
    found = load(bytes(total.mean()))
    for name in SHAPES:
        assert torch.equal(
            found[name].reshape(-1),
            aggregation.mean([load(model)[name].reshape(-1) for model in models], [1] * 7),
        )


def test_counters_and_halves_are_averaged_too() -> None:
    models = [
        encoded(0, steps=torch.tensor([n, 10]), half=torch.tensor([n], dtype=torch.float16))
        for n in (1, 2, 2)
    ]
    total = RunningSum(ModelLayout(models[0]))
    for model in models:
        total.add(owned(model), 1, owned=True)
    found = load(bytes(total.mean()))
    assert found["steps"].tolist() == [2, 10]
    assert found["half"].tolist() == [torch.tensor(5 / 3).half().item()]


def test_a_type_that_cannot_be_averaged_is_named() -> None:
    with pytest.raises(PlexusError, match="tensor odd is BF16"):
        ModelLayout(encoded(0, odd=torch.zeros(1, dtype=torch.bfloat16)))


def test_the_first_owned_model_becomes_the_sum_and_others_are_only_read() -> None:
    first, second = owned(encoded(0)), owned(encoded(1))
    before = bytes(second)
    total = RunningSum(ModelLayout(first))
    assert total.add(first, 1, owned=True)
    assert not total.add(second, 1, owned=True)
    assert total.mean() is first
    assert bytes(second) == before


def test_a_model_that_somebody_else_holds_is_not_changed() -> None:
    mine = encoded(0)
    total = RunningSum(ModelLayout(mine))
    assert not total.add(memoryview(mine), 1, owned=False)
    total.add(owned(encoded(1)), 1, owned=True)
    assert mine == encoded(0)
    assert bytes(total.mean()) != mine


@pytest.mark.parametrize("weights", [(1, 1, 1), (3, 0.7, 5)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_whoever_owns_the_models_the_mean_has_the_same_bits(weights: tuple[float, ...], count: int) -> None:
    """Those of one addition after the other, into a copy of the first."""
    models = [
        encoded(n, steps=torch.tensor([n, 9]), half=torch.rand(3).half(), small=torch.tensor([n]).char())
        for n in range(count)
    ]

    def mean(who_owns: Sequence[bool]) -> bytes:
        total, changes = (RunningSum(ModelLayout(models[0])) for _ in range(2))
        kept = [owned(model) for model in models]
        taken = [total.add(*each) for each in zip(kept, weights, who_owns, strict=False)]
        assert taken.count(True) == any(who_owns[:2]), "no copy is made where there is memory to add to"
        changes.add(kept[-1] if not who_owns[-1] else owned(models[-1]), 2, owned=False)
        found = bytes(total.mean(changes))
        still = [bytes(each) for each, is_taken in zip(kept, taken, strict=True) if not is_taken]
        assert still == [each for each, is_taken in zip(models, taken, strict=True) if not is_taken]
        return found

    assert len({mean(each) for each in product((True, False), repeat=count)}) == 1


def test_models_with_other_tensors_or_numbers_that_are_not_finite_are_refused() -> None:
    layout = ModelLayout(encoded(0))
    assert layout.flaw(memoryview(encoded(1))) is None
    other = bytes(save({"weight": torch.zeros(7, 3)}))
    assert layout.flaw(memoryview(other)) == "it has other tensors than this session's model"
    renamed = encoded(0).replace(b"weight", b"weighs")
    assert layout.flaw(memoryview(renamed)) == "it has other tensors than this session's model"
    for bad in (np.nan, np.inf, -np.inf):
        data = owned(encoded(0))
        layout.numbers(data)[0][3] = bad
        assert layout.flaw(data) == "it has numbers that are not finite"


@given(st.binary(max_size=300))
def test_a_seal_fits_what_was_sealed(data: bytes) -> None:
    assert fits(seal(data), data)
    assert seal(data) != seal(data), "every seal has a key of its own"


def test_a_seal_fits_a_model_of_many_pieces() -> None:
    data = bytes(range(256)) * 20_000
    assert fits(seal(data), memoryview(data))
    assert not fits(seal(data), data[1:] + data[:1])


@given(st.binary(min_size=1, max_size=100), st.integers(0), st.integers(1, 255))
def test_a_seal_does_not_fit_anything_else(data: bytes, at: int, change: int) -> None:
    changed = bytearray(data)
    changed[at % len(data)] ^= change
    assert not fits(seal(data), bytes(changed))
    assert not fits(seal(data), data + b"\0")


def arrived(data: bytes, buffers: Buffers) -> LiveModel:
    ticket = Ticket(lambda: None)
    buffers.request(ticket)
    assert ticket.buffer is not None
    ticket.buffer[:] = data
    return LiveModel(ticket.buffer, b"", ticket)


def test_a_round_that_is_abandoned_leaves_no_sum_behind(tmp_path: Path) -> None:
    """A sum lives by the contributions to it: when the node drops them, the memory is free."""
    asyncio.run(abandon_a_round(tmp_path))


async def abandon_a_round(tmp_path: Path) -> None:
    data = encoded(0)
    buffers = Buffers(len(data), 2 * len(data))
    aggregator = Aggregator(ModelLayout(data), buffers, MeanRule(), tmp_path, lambda *_: None)
    for round in (5, 6):
        model = arrived(data, buffers)
        aggregator.collect(Collect(round, model, 1))
        assert len(model.data) == 0, "its memory is not its own any more"
        if round == 5:
            gone = weakref.ref(aggregator._collected[False].sum)
        await asyncio.sleep(0)
    gc.collect()
    assert gone() is None
    assert buffers.free == buffers.count
    aggregator.close()


def test_the_change_of_a_training_is_its_difference_and_needs_one_models_memory() -> None:
    flags = torch.tensor([True, False, True])
    base = encoded(0, steps=torch.tensor([7, 10]), flags=flags)
    trained = encoded(1, steps=torch.tensor([5, 12]), flags=~flags)
    layout = ModelLayout(base)
    change = layout.difference(memoryview(trained), memoryview(base))
    assert layout.flaw(change) is None
    assert (base, trained) == (
        encoded(0, steps=torch.tensor([7, 10]), flags=flags),
        encoded(1, steps=torch.tensor([5, 12]), flags=~flags),
    )
    found, after, before = load(bytes(change)), load(trained), load(base)
    for name in ("steps", *SHAPES):
        assert torch.equal(found[name], after[name] - before[name])
    total = RunningSum(layout)
    total.add(owned(base), 1, owned=True)
    changes = RunningSum(layout, is_change=True)
    changes.add(change, 1, owned=True)
    changes.add(memoryview(bytes(change)), 1, owned=False)
    mean = load(bytes(total.mean(changes)))
    assert mean["steps"].tolist() == [6, 11], "7 - 2 * 2/3 and 10 + 2 * 2/3"
    assert mean["flags"].tolist() == [False, True, False], "what went from 1 to 0 is less, not 255 more"


def spooled(
    folder: Path, models: list[bytes], rule: Rule, changes: Sequence[bytes] = ()
) -> dict[str, torch.Tensor]:
    layout = ModelLayout(models[0])
    kept, late = (Spool(layout, rule, folder, 1, is_change) for is_change in (False, True))
    for model in models:
        assert not kept.add(owned(model), 1, owned=True), "its buffer is free again"
    for change in changes:
        late.add(owned(change), 1, owned=True)
    found = load(bytes(kept.mean(late if changes else None)))
    assert not list(folder.iterdir()), "the file has no name, so nothing is left of it after a crash"
    return found


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name] not in aggregation.MEANS])
def test_a_rule_that_needs_all_models_has_the_same_bits_as_the_simulators(name: str, tmp_path: Path) -> None:
    models, rule = [encoded(seed) for seed in range(7)], RULES[name]()
    module = torch.nn.ParameterDict({key: torch.zeros(shape) for key, shape in SHAPES.items()})
    layout = Layout.of(module)
    vectors = [layout.flatten(load(model)) for model in models]
    for late in (0, 2):
        [trained, base] = encoded(20), encoded(21)
        change = bytes(ModelLayout(base).difference(owned(trained), owned(base)))
        found = spooled(tmp_path, models, rule, [change] * late)
        after, before = (layout.flatten(load(each)) for each in (trained, base))
        wanted = layout.tensors(robust(rule, layout, vectors, [after - before] * late))
        for key in SHAPES:
            torch.testing.assert_close(found[key], wanted[key], rtol=1e-6, atol=1e-7)


def test_counters_of_a_robust_rule_are_whole_and_a_rule_that_fails_is_named(tmp_path: Path) -> None:
    models = [encoded(0, steps=torch.tensor([n, 10]), on=torch.tensor([n > 1])) for n in (1, 2, 2)]
    found = spooled(tmp_path, models, MedianRule())
    assert (found["steps"].tolist(), found["on"].tolist()) == ([2, 10], [True])

    class Broken(Rule, frozen=True):
        def combine(self, rows: NDArray[Any]) -> NDArray[Any]:
            raise ZeroDivisionError("oh")

    with pytest.raises(PlexusError, match=r"^aggregation: ZeroDivisionError: oh"):
        spooled(tmp_path, models, Broken())


def test_models_that_do_not_fit_on_the_disk_are_said_when_the_round_is_over(tmp_path: Path) -> None:
    data = encoded(0, large=torch.zeros(100_000))
    found: list[tuple[LiveModel | None, str | None]] = []

    async def story(disk: Path) -> None:
        buffers = Buffers(len(data), 2 * len(data))
        told = lambda round, model, flaw: found.append((model, flaw))  # noqa: E731
        aggregator = Aggregator(ModelLayout(data), buffers, MedianRule(), disk, told)
        held = LiveModel(owned(data), b"")
        aggregator.collect(Collect(5, held, 1))
        aggregator.aggregate(Aggregate(5, (held,), (1,)))
        await asyncio.sleep(0.01)
        aggregator.close()

    with small_disk(tmp_path / "disk", kilobytes=100) as disk:
        asyncio.run(story(disk))
    assert found == [(None, "the models of the round cannot be kept: No space left on device")]


def test_a_rule_that_gets_no_file_for_its_models_says_so_and_keeps_no_buffer(tmp_path: Path) -> None:
    data, found = encoded(0), list[tuple[int, str | None]]()

    async def story() -> None:
        buffers = Buffers(len(data), 2 * len(data))
        told = lambda round, model, flaw: found.append((round, flaw))  # noqa: E731
        aggregator = Aggregator(ModelLayout(data), buffers, MedianRule(), tmp_path, told)
        for round, most in ((5, 3), (6, limits[0])):
            models = [arrived(data, buffers) for _ in range(2)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
            for each in models:
                aggregator.collect(Collect(round, each, 1))
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            aggregator.aggregate(Aggregate(round, tuple(models), (1, 1)))
            await asyncio.sleep(0.01)
            assert buffers.free == buffers.count
        aggregator.close()

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        asyncio.run(story())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == [(5, "the models of the round cannot be kept: Too many open files"), (6, None)]
