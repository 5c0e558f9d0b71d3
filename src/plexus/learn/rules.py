"""Rules of aggregation that need all models of a round: what becomes of them where some members lie.

A rule is two small functions. `mix` looks at how far the models are from each other and says what each counts
(not at all, where it returns None); `combine` makes one row of numbers out of many, coordinate by coordinate.
So all rules go through models chunk by chunk, once for distances if they want them and once for the result,
and need the memory of one model and a chunk of each, wherever the models themselves lie. Without torch:
live peers compute the same, bit for bit.

None looks at the examples behind a model: that is its sender's word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.loading import OwnSpec, load_own

Runs = Sequence[NDArray[Any]]
"""The numbers of a model, in as many arrays as it has types."""
Floats = NDArray[np.float64]
CHUNK = 1 << 14
"""Coordinates at a time: those of a dozen models stay in a processor's cache."""
CLIPPINGS = 50
NEAR = 1.5
"""Medians: models farther from the centre than that have no part in it."""
TINY = 1e-100
"""Instead of a distance of zero."""


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a rule. One of your own derives from this and overrides `mix`, `combine` or both."""

    def mix(self, distances: Floats) -> Floats | None:
        """Rows of what each model counts, by their distances from each other; None: no distances wanted."""
        return None

    def combine(self, rows: Floats) -> Floats:
        """One row, of the models' or of the mixed ones; each column by itself."""
        return _mean(rows)


class MeanRule(Rule, frozen=True):
    """Each model counts the same: the paper's rule. In the memory of one model."""


class WeightedMeanRule(Rule, frozen=True):
    """Each model counts by the number of examples behind it. In the memory of one model."""


class MedianRule(Rule, frozen=True):
    """The median of each weight."""

    def combine(self, rows: Floats) -> Floats:
        middle: Floats = np.median(rows, axis=0)
        return middle


class ClipRule(Rule, frozen=True):
    """A centre, moved by the mean of the models' differences from it, each clipped at the median distance. So
    none moves it by more than half of them do. It needs no model that all began with, which an aggregator
    does not hold: from where clipped differences balance, the centre goes to the mean of the models near."""

    factor: Annotated[float, Meta(gt=0)] = 1.0
    """The bound, as a multiple of the median distance."""

    def mix(self, distances: Floats) -> Floats:
        squared = distances**2
        weights: Floats = np.full(len(distances), 1 / len(distances))
        for _ in range(CLIPPINGS):
            weights = self._clipped(weights, squared)
        for _ in range(CLIPPINGS):
            away = _away(weights, squared)
            near = away <= NEAR * np.median(away)
            weights = near / near.sum()
        return self._clipped(weights, squared)[None]

    def _clipped(self, weights: Floats, squared: Floats) -> Floats:
        away = _away(weights, squared)
        kept = np.minimum(1.0, self.factor * np.median(away) / np.maximum(away, TINY))
        moved: Floats = (1 - kept.mean()) * weights + kept / len(kept)
        return moved


class TolerantRule(Rule, frozen=True):
    """What rules have that bear a number of attackers."""

    tolerated: Annotated[float, Meta(ge=0, lt=0.5)] = 0.3
    """The share of a round's models that may be attackers'. With 20 % of the nodes attacking, more than 3 of
    10 models are theirs in every eighth round."""

    def bad(self, models: int) -> int:
        return min(int(self.tolerated * models + 1e-9), (models - 1) // 2)


class TrimmedMeanRule(TolerantRule, frozen=True):
    """The mean of each weight without its largest and its smallest values, as many as are tolerated."""

    def combine(self, rows: Floats) -> Floats:
        cut = self.bad(len(rows))
        return _mean(np.sort(rows, axis=0)[cut : len(rows) - cut])


class MultiKrumRule(TolerantRule, frozen=True):
    """The mean of the models that are nearest to most others, all but those tolerated."""

    def mix(self, distances: Floats) -> Floats:
        kept = len(distances) - self.bad(len(distances))
        nearest = np.sort(distances**2, axis=1)[:, 1:kept]
        best = np.argsort(nearest.sum(axis=1), kind="stable")[:kept]
        return _picked(best[None], len(distances))


class NnmTrimmedRule(TrimmedMeanRule, frozen=True):
    """Nearest-neighbour mixing, then the trimmed mean: each model is replaced by the mean of those nearest to
    it, all but those tolerated, itself among them."""

    def mix(self, distances: Floats) -> Floats:
        kept = len(distances) - self.bad(len(distances))
        return _picked(np.argsort(distances, axis=1, kind="stable")[:, :kept], len(distances))


RULES: dict[str, type[Rule]] = {
    "mean": MeanRule,
    "sample-weighted-mean": WeightedMeanRule,
    "clip": ClipRule,
    "trimmed-mean": TrimmedMeanRule,
    "median": MedianRule,
    "multi-krum": MultiKrumRule,
    "nnm-trimmed": NnmTrimmedRule,
}


def built(rule: Rule | OwnSpec, base_dir: Path) -> Rule:
    """The rule itself; one of the user's own, derived from `Rule`, is searched in `base_dir` first."""
    if isinstance(rule, Rule):
        return rule
    made = load_own(rule.name, base_dir, "aggregation")
    if made is None:
        module, _, name = rule.name.partition(":")
        raise PlexusError(f"aggregation: module {module} has no {name}")
    try:
        found = made(**rule.parameters)
    except TypeError as error:
        raise PlexusError(f"aggregation: {rule.name} cannot be made: {error}") from None
    if not isinstance(found, Rule):
        raise PlexusError(f"aggregation: {rule.name} is no plexus.learn.rules.Rule")
    return found


def aggregate(
    rule: Rule,
    models: Sequence[Runs],
    out: Runs,
    changes: Sequence[Runs] = (),
    measured: Sequence[bool] | None = None,
) -> None:
    """Write what `rule` makes of `models` to `out`.

    Each of `changes` is one model more: as if it had moved what comes of the others alone. So the mean of n
    models and m changes is Σ models / n + Σ changes / (n + m). `measured` says which arrays count in
    distances: counters, say, do not.
    """
    measured = [run.dtype.kind == "f" for run in out] if measured is None else measured
    _apply(rule, [(model,) for model in models], out, measured)
    if changes:
        first = [run.copy() for run in out]
        candidates = [*((model,) for model in models), *((first, change) for change in changes)]
        _apply(rule, candidates, out, measured)


def _apply(rule: Rule, models: Sequence[tuple[Runs, ...]], out: Runs, measured: Sequence[bool]) -> None:
    """`models` are sums of runs."""
    squared = np.zeros((len(models), len(models)))
    weights = None
    if type(rule).mix is not Rule.mix:
        for at in range(len(out)):
            for _, rows in _chunks(models, at, len(out[at])) if measured[at] else ():
                for i, row in enumerate(rows):
                    away = rows[i + 1 :] - row
                    squared[i, i + 1 :] += np.einsum("ij,ij->i", away, away)
        weights = rule.mix(np.sqrt(squared + squared.T))
    for at, result in enumerate(out):
        for part, rows in _chunks(models, at, len(result)):
            # Not by a library of matrices: its sums depend on the number of threads.
            mixed = rows if weights is None else np.einsum("ij,jk->ik", weights, rows)
            made = rule.combine(mixed)
            result[part] = np.rint(made) if result.dtype.kind in "iu" else made


def _chunks(models: Sequence[tuple[Runs, ...]], at: int, size: int) -> Iterator[tuple[slice, Floats]]:
    for start in range(0, size, CHUNK):
        part = slice(start, start + CHUNK)
        yield part, np.stack([sum(np.asarray(run[at][part], float) for run in model) for model in models])


def _away(weights: Floats, squared: Floats) -> Floats:
    """How far each model is from their weighted mean, by their squared distances from each other."""
    among = np.einsum("ij,j->i", squared, weights)
    away: Floats = np.sqrt(np.maximum(among - np.einsum("i,i->", among, weights) / 2, 0.0))
    return away


def _mean(rows: Floats) -> Floats:
    """One addition after the other."""
    total: Floats = rows[0].copy()
    for row in rows[1:]:
        total += row
    total /= len(rows)
    return total


def _picked(rows: NDArray[np.intp], models: int) -> Floats:
    weights = np.zeros((len(rows), models))
    np.put_along_axis(weights, rows, 1 / rows.shape[1], axis=1)
    return weights
