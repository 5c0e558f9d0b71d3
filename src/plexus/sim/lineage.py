"""Whose work is behind the final model: what every model was made from, kept as numbers alone.

Models are many and large, and are forgotten when nobody needs them. What remains of one here are its parents
and who trained it, some 20 bytes: the lineage of a session of days is exact and costs next to nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import compress, count
from typing import Any, NamedTuple

from plexus.protocol.api import Change
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.messages import NodeId
from plexus.runs.result import Cut, Lineage, Used
from plexus.sim.runtime import Models

COMBINED = -1
"""In place of the node that trained: the model is an aggregate."""


class Completed(NamedTuple):
    """An aggregate that a node went on with."""

    number: int
    round: int
    ordinal: int
    aggregator: NodeId
    at_s: float


class WhoseWork(NamedTuple):
    """What is behind the newest aggregate."""

    trainings_used: list[int]
    """By device."""
    late_used: list[int]
    """Those of them of which only the change is behind it."""
    used: Used
    lineage: Lineage


class TracedModels:
    """Passes on the models of a session, and notes what is made from what.

    Each has a `number`, its place in the order in which they are made; the initial model's is negative.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self.model_bytes = models.model_bytes
        self.samples = models.samples
        self._trained_by = array("i")
        self._parents = array("i")
        self._parents_end = array("q", [0])
        """Those of model i end here, at i + 1, and begin where those of the model before it end."""
        self._changes = array("i")
        """In pairs: an aggregate, and a training that is in it by its change alone. What that began with is
        no parent: it may be of a fork."""
        self._completed: list[Completed] = []
        self._final = Completed(-1, 0, 0, -1, 0.0)

    def train(self, model: Any, node: NodeId, round: int) -> Any:
        return self._note(self._models.train(model, node, round), node, (model,))

    def mean(
        self,
        models: Sequence[Any],
        samples: Sequence[int],
        changes: Sequence[Change] = (),
        change_samples: Sequence[int] = (),
    ) -> Any:
        made = self._note(self._models.mean(models, samples, changes, change_samples), COMBINED, models)
        for change in changes:
            self._changes.extend((made.number, change.trained.number))
        return made

    def merge(self, models: Sequence[Any], weights: Sequence[float]) -> Any:
        return self._note(self._models.merge(models, weights), COMBINED, models)

    def _note(self, made: Any, node: int, parents: Iterable[Any]) -> Any:
        assert made.number <= len(self._trained_by), "a model was made by others"
        if made.number == len(self._trained_by):  # else it was asked for before
            self._trained_by.append(node)
            self._parents.extend(parent.number for parent in parents if parent.number >= 0)
            self._parents_end.append(len(self._parents))
        return made

    def on_fact(self, now_s: float, node: NodeId, fact: Any) -> None:
        if isinstance(fact, AggregationCompleted):
            aggregate = Completed(fact.model.number, fact.round, fact.ordinal, node, now_s)
            self._completed.append(aggregate)
            # As for evaluations: of two aggregates of a round the first stands for it.
            if aggregate.round > self._final.round:
                self._final = aggregate

    def whose(self, trainings: Sequence[int], training_s: Sequence[float]) -> WhoseWork:
        """What the newest aggregate is made from.

        Given by device: how many trainings it finished, and how long one takes.
        """
        behind = self._behind()
        changes = zip(self._changes[::2], self._changes[1::2], strict=True)
        late = {trained for made, trained in changes if behind[made] and not behind[trained]}
        late_used = self._by_device(late, len(trainings))
        in_time = self._by_device(compress(count(), behind), len(trainings))
        used = [one + other for one, other in zip(in_time, late_used, strict=True)]
        forks, longest_rounds = self._forks(behind)
        aggregators: dict[int, set[NodeId]] = {}
        for aggregate in self._completed:
            aggregators.setdefault(aggregate.ordinal, set()).add(aggregate.aggregator)
        duplicates = sum(len(nodes) > 1 for nodes in aggregators.values())
        lineage = Lineage(sum(used), forks, longest_rounds, duplicates)
        return WhoseWork(used, late_used, _summed_up(trainings, used, len(late), training_s), lineage)

    def _by_device(self, models: Iterable[int], devices: int) -> list[int]:
        """How many of these models each device trained."""
        found = Counter(self._trained_by[number] for number in models)
        return [found[device] for device in range(devices)]

    def survivors(self, from_s: float, until_s: float, cut_off: Collection[NodeId]) -> Cut:
        """Of what both sides of a cut aggregated while it lasted, how much is behind the newest aggregate."""
        behind = self._behind()
        made, survived = [0, 0], [0, 0]
        for aggregate in self._completed:
            if from_s <= aggregate.at_s <= until_s:
                side = aggregate.aggregator not in cut_off
                made[side] += 1
                survived[side] += behind[aggregate.number]
        sides = (made[False], survived[False], made[True], survived[True])
        return Cut(from_s / 3600, until_s / 3600, len(cut_off), *sides)

    def _forks(self, behind: bytearray) -> tuple[int, int]:
        """How many there are, and the most aggregates in succession.

        A fork begins with an aggregate that is not behind the newest one and is made from none such; it goes
        on with what is made from it.
        """
        completed = {aggregate.number for aggregate in self._completed}
        rounds: dict[int, int] = {}
        """By model of a fork, how many aggregates of it led there."""
        forks = 0
        for number, is_behind in enumerate(behind):
            if not is_behind:
                before = max((rounds.get(parent, 0) for parent in self._parents_of(number)), default=0)
                forks += number in completed and before == 0
                rounds[number] = before + (number in completed)
        return forks, max(rounds.values(), default=0)

    def _parents_of(self, number: int) -> array[int]:
        return self._parents[self._parents_end[number] : self._parents_end[number + 1]]

    def _behind(self) -> bytearray:
        """By model, whether it is the newest aggregate or one that this is made from."""
        behind = bytearray(len(self._trained_by))
        if self._final.number >= 0:
            behind[self._final.number] = 1
        for number in range(self._final.number, -1, -1):  # parents were made before
            if behind[number]:
                for parent in self._parents_of(number):
                    behind[parent] = 1
        return behind


def _summed_up(trainings: Sequence[int], used: Sequence[int], late: int, training_s: Sequence[float]) -> Used:
    by_speed = sorted(range(len(trainings)), key=training_s.__getitem__)

    def share(devices: Sequence[int]) -> float | None:
        finished = sum(trainings[device] for device in devices)
        return sum(used[device] for device in devices) / finished if finished else None

    return Used(
        share=share(by_speed),
        never_used_nodes=sum(n > 0 and not u for n, u in zip(trainings, used, strict=True)),
        slowest_tenth_share=share(by_speed[-((len(by_speed) + 9) // 10) :]),
        fastest_half_share=share(by_speed[: (len(by_speed) + 1) // 2]),
        late=late,
    )
