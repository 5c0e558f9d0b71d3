"""What attackers send instead of what they have trained: models that are to spoil the aggregate.

An attacker trains honestly first, on its own data, and then changes the result. Engines and live workers
carry out trainings; here is what is between them and whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn.engines import Engine, LocalTraining
from plexus.learn.task import Task
from plexus.rng import array_stream, stream

Trains = Callable[[Sequence[LocalTraining]], list[Tensor]]
ACCOMPLICES = 10
"""Attackers whose honest trainings tell the others what honest changes look like."""


class Attack(Protocol):
    """One attacker's behaviour; a spec's `attackers` say what the words mean."""

    @property
    def behaviour(self) -> str: ...
    @property
    def factor(self) -> float | None: ...


class Poison:
    """The trainings of a session in which some attack. Draws depend on seed, node and round alone.

    Of a vector the first `shared` numbers are sent; what a node keeps to itself is as it trained it.
    """

    def __init__(
        self, attackers: Mapping[int, Attack], nodes: int, seed: int, train: Trains, shared: int | None = None
    ) -> None:
        self._attackers = attackers
        self._seed = seed
        self._train = train
        self._shared = shared
        self._colluding = sorted(node for node, each in attackers.items() if each.behaviour == "alie")
        alie = little_enough(nodes, len(attackers))
        self._usual = {"flip": 4.0, "scale": 10.0, "noise": 10.0, "alie": alie}

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        """What comes of each of `jobs`, as its node sends it."""
        asked = list(jobs)
        crowds: dict[tuple[int, int], slice] = {}
        for job in jobs:
            key = id(job.base), job.round
            if job.node in self._colluding and key not in crowds:
                count = min(ACCOMPLICES, len(self._colluding))
                drawn = stream(self._seed, "attack", "alie", job.round).sample(self._colluding, count)
                accomplices = sorted(drawn)
                crowds[key] = slice(len(asked), len(asked) + len(accomplices))
                asked += [LocalTraining(job.base, node, job.round) for node in accomplices]
        trained = self._train(asked)
        return [
            self._sent(job, trained[at], trained[crowds.get((id(job.base), job.round), slice(0))])
            for at, job in enumerate(jobs)
        ]

    def _sent(self, job: LocalTraining, trained: Tensor, crowd: Sequence[Tensor]) -> Tensor:
        attack = self._attackers.get(job.node)
        if attack is None or attack.behaviour == "label-flip":
            return trained
        base, sent, *others = (each[: self._shared] for each in (job.base, trained, *crowd))
        return torch.cat([self._spoilt(job, attack, base, sent, others), trained[len(sent) :]])

    def _spoilt(
        self, job: LocalTraining, attack: Attack, base: Tensor, trained: Tensor, crowd: Sequence[Tensor]
    ) -> Tensor:
        change = trained - base
        factor = attack.factor or self._usual[attack.behaviour]
        match attack.behaviour:
            case "flip":
                return base.sub(change, alpha=factor)
            case "scale":
                return base.add(change, alpha=factor)
            case "noise":
                rng = array_stream(self._seed, "attack", "noise", job.node, job.round)
                noise = torch.from_numpy(rng.standard_normal(len(change))).to(change)
                return trained.add(noise, alpha=factor * float(change.norm()) / len(change) ** 0.5)
        together = torch.stack(list(crowd))
        return together.mean(dim=0).sub(together.std(dim=0, correction=0), alpha=factor)


class PoisonedEngine:
    def __init__(self, engine: Engine, attackers: Mapping[int, Attack], task: Task) -> None:
        self._engine = engine
        self.train = Poison(attackers, task.nodes, task.seed, engine.train, engine.layout.shared_size).train

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def little_enough(nodes: int, attackers: int) -> float:
    """How many standard deviations from the mean stay unnoticed: so many that with the attackers' help
    most nodes are still further away (Baruch, Baruch, Goldberg: A Little Is Enough, 2019)."""
    honest = max(1, nodes - attackers)
    needed = max(1, nodes // 2 + 1 - attackers)
    share = min(max((honest - needed) / honest, 0.5), 1 - 1 / (2 * honest))
    return NormalDist().inv_cdf(share)


def mislabelled(task: Task, attackers: Mapping[int, Attack]) -> Task:
    """The task with wrong targets for those who flip labels: the highest for the lowest and so on."""
    nodes = [node for node, attack in attackers.items() if attack.behaviour == "label-flip"]
    if not nodes:
        return task
    if not isinstance(task.train.targets, Tensor):
        raise PlexusError(f"attackers.behaviour label-flip: the targets of task {task.name} are no tensor")
    targets = task.train.targets.clone()
    rows = torch.from_numpy(np.concatenate([task.parts[node] for node in nodes]))
    targets[rows] = targets.max() + targets.min() - targets[rows]
    return replace(task, train=replace(task.train, targets=targets))
