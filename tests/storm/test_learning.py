"""A storm costs time, not accuracy: when it is over, learning gets where a quiet session gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plexus.learn.engines import create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.tasks import build_task
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.parameters import PlexusParameters
from plexus.spec.experiment import parse_spec
from plexus.storm import plan as kinds
from plexus.storm.plan import Plan
from plexus.storm.storm import Storm

NODES, STORM_S, ROUNDS = 20, 900.0, 80
MARGIN = 0.03
"""Quiet sessions of different seeds differ by as much."""
PARAMETERS = PlexusParameters(
    sample_size=6, aggregation_timeout_s=20, ack_timeout_s=30, watchdog_s=60, readvertise_s=40
)
FAULTS = (
    kinds.Loss(share=0.2, until_s=STORM_S),
    kinds.Duplication(share=0.2, until_s=STORM_S),
    kinds.Delay(share=0.3, longest_s=20.0, until_s=STORM_S),
    kinds.Partition(kind="full", side=frozenset(range(8)), from_s=200.0, until_s=500.0),
    kinds.Churn(mean_s=100.0, leave_share=0.5, restart_share=0.5, disk_lost_share=0.2, until_s=STORM_S),
    kinds.PowerCut(mean_s=60.0, until_s=STORM_S),
    kinds.Slow(nodes=frozenset(range(5)), factor=10.0, lag_s=1.0, until_s=STORM_S),
)


class LearningStorm(Storm):
    """Remembers the newest model."""

    number = round = 0
    model: Any = None

    def reported(self, node: int, fact: Any) -> None:
        if isinstance(fact, AggregationCompleted) and fact.round > self.number:
            self.number, self.round, self.model = fact.round, fact.ordinal, fact.model


def accuracy(seed: int, faults: tuple[kinds.Fault, ...]) -> float:
    spec = parse_spec(f'name = "storm"\nnodes = {NODES}\nhours = 1\n[task]\nname = "digits"\n', "s")
    task = build_task(spec.task.parameters, NODES, seed, Path())
    engine, _ = create_engine("inline", task)
    models = LazyModels(task, engine)
    plan = Plan(
        seed=seed,
        protocol="plexus",
        parameters=PARAMETERS,
        nodes=NODES,
        at_start=NODES,
        gone=0,
        sharing="shared",
        through_codec=False,
        connected=False,
        storm_s=STORM_S,
        faults=faults,
    )
    storm = LearningStorm(plan, kept_lines=0, learning=(models, models.initial()))
    storm.play()
    while storm.round < ROUNDS:
        storm.runtime.run(storm.runtime.kernel.now + 20)
    found = models.evaluate(storm.model).value
    models.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_after_a_storm_accuracy_is_that_of_a_quiet_session(seed: int) -> None:
    quiet, stormy = accuracy(seed, ()), accuracy(seed, FAULTS)
    assert quiet > 0.85
    assert stormy > quiet - MARGIN
