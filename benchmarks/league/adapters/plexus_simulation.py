"""Plexus as one uses it: a session of federated averaging in virtual time, with all that it records."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import plexus
from benchmarks.league.work import (
    BATCH,
    CLASSES,
    CLIENTS,
    HIDDEN,
    LEARNING_RATE,
    PIXELS,
    Clock,
    Weights,
    Work,
    main,
    make_work,
)


class Net(nn.Sequential):
    def __init__(self, seed: int) -> None:
        super().__init__(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        initial = make_work(seed, rounds=0).initial
        self.load_state_dict({name: torch.from_numpy(array) for name, array in initial.items()})


def build(nodes: int, seed: int) -> plexus.Task:
    work = make_work(seed, rounds=0)
    trained = work.targets.size
    return plexus.Task(
        name="league",
        seed=seed,
        train=_examples(work.inputs.reshape(trained, PIXELS), work.targets.reshape(trained), 0),
        parts=tuple(np.arange(trained).reshape(nodes, -1)),
        test=_examples(work.test_inputs, work.test_targets, trained),
        build_model=partial(Net, seed),
        loss=nn.functional.cross_entropy,
        measure=plexus.TOP1,
        optimiser=plexus.Sgd(LEARNING_RATE),
        local_epochs=1,
        batch=BATCH,
    )


def _examples(inputs: np.ndarray, targets: np.ndarray, first: int) -> plexus.Examples:
    ids = np.arange(first, first + len(targets))
    return plexus.Examples(torch.from_numpy(inputs), torch.from_numpy(targets), ids)


def learn(work: Work, clock: Clock) -> Weights:
    # The model of round 1 is the initial one: round 11 has the average of ten times ten trainings.
    every = clock.first + 1
    assert (clock.last + 1) % every == 0, "evaluated when it is to be measured"

    def evaluated(row: Mapping[str, Any]) -> None:
        averaged = row["round"] - 1
        clock.round_done(averaged)
        if averaged == work.rounds:
            raise plexus.StopRun

    spec = {
        "name": "league",
        "seed": work.seed,
        "nodes": CLIENTS,
        "hours": 100,
        "protocol": {"name": "fedavg", "sample_size": CLIENTS, "success_fraction": 1.0},
        "task": {"name": "benchmarks.league.adapters.plexus_simulation:build"},
        "traces": {"availability": "none"},
        "evaluation": {"every_rounds": every},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = plexus.simulate(spec, out=f"{folder}/run", on_evaluation=evaluated)
        return {name: tensor.numpy() for name, tensor in run.model().state_dict().items()}


if __name__ == "__main__":
    main(learn, "torch", plexus=plexus.__version__)
