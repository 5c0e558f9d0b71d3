"""Rules that need all models: what the literature's library makes of the same, and what holds for any."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.learn import rules
from plexus.learn.aggregation import robust, weighted_mean
from plexus.learn.layout import Layout, named_tensors
from plexus.learn.rules import (
    RULES,
    ClipRule,
    MeanRule,
    MedianRule,
    MultiKrumRule,
    NnmTrimmedRule,
    Rule,
    TrimmedMeanRule,
    aggregate,
    built,
)
from plexus.loading import OwnSpec

Array = NDArray[Any]
ROBUST = [name for name in RULES if "mean" not in name] + ["trimmed-mean"]


def models(count: int, size: int = 40_000, seed: int = 1) -> Array:
    """Some of one kind and, from four on, a few far off; more coordinates than a chunk has."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, size)) + rng.normal(size=size)
    rows[: count // 4] = -4 * rows[: count // 4]
    return rows


def made(rule: Rule, rows: Array, changes: Array | None = None) -> Array:
    out = np.empty_like(rows[0])
    late = [] if changes is None else [[change] for change in changes]
    aggregate(rule, [[row] for row in rows], [out], late)
    return out


@pytest.fixture(scope="module")
def byzfl() -> ModuleType:
    """Its rules alone: the package itself imports what draws and trains, torchvision and seaborn."""
    found = find_spec("byzfl")
    if found is None:
        pytest.skip("byzfl is not installed: make develop")
    package = ModuleType("byzfl")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators")


@pytest.mark.parametrize("count", [3, 10, 13])
def test_every_rule_agrees_with_byzfl(byzfl: ModuleType, count: int) -> None:
    rows = models(count)
    bad = TrimmedMeanRule().bad(count)
    mixed = byzfl.NNM(bad)(rows)
    wanted = {
        MeanRule(): byzfl.Average()(rows),
        MedianRule(): byzfl.Median()(rows),
        TrimmedMeanRule(): byzfl.TrMean(bad)(rows),
        MultiKrumRule(): byzfl.MultiKrum(bad)(rows),
        NnmTrimmedRule(): byzfl.TrMean(bad)(mixed),
    }
    for rule, expected in wanted.items():
        np.testing.assert_allclose(made(rule, rows), expected, rtol=0, atol=1e-6, err_msg=str(rule))


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_clip_is_byzfls_centred_clipping_around_the_models_near_each_other(
    byzfl: ModuleType, factor: float
) -> None:
    rows = models(10)
    rows[:3] += 2.5 * rows.std(axis=0)

    def away(centre: Any) -> Any:
        return np.linalg.norm(rows - centre, axis=1)

    def clipped(centre: Any) -> Any:
        # From 0: it refuses any other start.
        bound = float(factor * np.median(away(centre)))
        return centre + byzfl.CenteredClipping(L=1, tau=bound)(rows - centre)

    centre = rows.mean(axis=0)
    for _ in range(rules.CLIPPINGS):
        centre = clipped(centre)
    for _ in range(rules.CLIPPINGS):
        near = away(centre) <= rules.NEAR * np.median(away(centre))
        centre = rows[near].mean(axis=0)
    assert 0 < near.sum() < len(rows)
    np.testing.assert_allclose(made(ClipRule(factor=factor), rows), clipped(centre), rtol=0, atol=1e-6)


def test_clip_lets_few_move_it_by_their_share_of_the_median_distance_and_no_more() -> None:
    honest = np.random.default_rng(1).normal(size=(8, 5000))
    lies = honest.mean(axis=0) - 2.5 * honest.std(axis=0)
    result = made(ClipRule(), np.concatenate([honest, [lies, lies]]))
    moved = np.linalg.norm(result - honest.mean(axis=0))
    assert moved < 1.05 * 0.2 * np.linalg.norm(honest - honest.mean(axis=0), axis=1).mean()


def test_the_share_that_is_tolerated_leaves_a_majority() -> None:
    rule = TrimmedMeanRule(tolerated=0.3)
    assert [rule.bad(count) for count in (1, 2, 3, 4, 7, 10, 13)] == [0, 0, 0, 1, 2, 3, 3]
    assert [TrimmedMeanRule(tolerated=0.49).bad(count) for count in (2, 3, 10)] == [0, 1, 4]


@pytest.mark.parametrize("name", RULES)
def test_equal_models_are_left_as_they_are(name: str) -> None:
    rows = np.repeat(models(1, size=100), 5, axis=0)
    for count in (1, 2, 5):
        np.testing.assert_allclose(made(RULES[name](), rows[:count]), rows[0], rtol=1e-12)


@pytest.mark.parametrize("name", ROBUST)
def test_the_order_of_models_does_not_matter(name: str) -> None:
    rows = models(9)
    np.testing.assert_allclose(made(RULES[name](), rows), made(RULES[name](), rows[::-1]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROBUST)
def test_one_far_off_moves_the_result_by_little_however_far(name: str) -> None:
    rows = models(10, size=1000)[4:]
    spread = np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()
    without = made(RULES[name](), rows[1:])
    for far in (1e2, 1e6):
        rows[0] = far
        assert np.linalg.norm(made(RULES[name](), rows) - without) < 2 * spread


def test_a_change_is_one_model_more_and_none_counts_more_than_the_rule_lets_it() -> None:
    rows, changes = models(10, size=500)[3:], models(3, size=500, seed=2)
    wanted = rows.mean(axis=0) + changes.sum(axis=0) / (len(rows) + len(changes))
    np.testing.assert_allclose(made(Rule(), rows, changes), wanted, rtol=1e-12, atol=1e-12)
    first = made(NnmTrimmedRule(), rows)
    together = made(NnmTrimmedRule(), np.concatenate([rows, first + changes]))
    np.testing.assert_allclose(made(NnmTrimmedRule(), rows, changes), together, rtol=1e-12)
    spread = np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()
    for name in ROBUST:
        moved = made(RULES[name](), rows, 1e6 * changes[:1]) - made(RULES[name](), rows)
        assert np.linalg.norm(moved) < 2 * spread, name


def test_counters_are_combined_but_not_measured() -> None:
    """A counter that is far off says nothing about weights."""
    rows = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [9.0, 9.0]])
    counters = np.array([[100], [7], [9], [8]])
    out = [np.empty(2), np.empty(1, np.int64)]
    rule = MultiKrumRule()
    aggregate(rule, [[row, counter] for row, counter in zip(rows, counters, strict=True)], out)
    np.testing.assert_allclose(out[0], rows[:3].mean(axis=0))
    assert out[1].tolist() == [39]  # (100 + 7 + 9) / 3, rounded
    module = torch.nn.BatchNorm1d(1)
    layout = Layout.of(module)
    vectors = [layout.flatten(named_tensors(module)) + at for at in (0.0, 0.1, 0.2, 9.0)]
    vectors[0][-1] = 1000.0
    found = robust(rule, layout, vectors)
    assert torch.equal(found, weighted_mean(vectors[:3], [1, 1, 1]))


class Halving(Rule, frozen=True):
    """A rule of one's own."""

    by: float

    def combine(self, rows: Array) -> Array:
        half: Array = rows[0] / self.by
        return half


def test_a_rule_of_ones_own_has_parameters_and_is_checked() -> None:
    here = OwnSpec(f"{__name__}:Halving", {"by": 4})
    assert made(built(here, Path()), np.array([[8.0], [1.0]])).tolist() == [2.0]
    for name, parameters, words in (
        ("Halving", {"buy": 4}, "Halving cannot be made: .*buy"),
        ("models", {"count": 2}, "models is no plexus.learn.rules.Rule"),
        ("missing", {}, "has no missing"),
    ):
        with pytest.raises(PlexusError, match=f"^aggregation: .*{words}"):
            built(OwnSpec(f"{__name__}:{name}", parameters), Path())


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = models(8, size=1000)
    wanted = {name: made(RULES[name](), rows) for name in ROBUST}
    monkeypatch.setattr(rules, "CHUNK", 7)
    for name in ROBUST:
        np.testing.assert_allclose(made(RULES[name](), rows), wanted[name], rtol=1e-12, atol=1e-12)
