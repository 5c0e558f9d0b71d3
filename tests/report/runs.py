"""Runs that never happened, to be reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plexus.metrics.result import Metric, Result, Traffic, Trainings
from plexus.metrics.store import Run

ACCURACIES = (0.1, 0.6, 0.9, 0.85)


def result(**changes: Any) -> Result:
    """The outcome of a small run."""
    values: dict[str, Any] = {
        "digest": "d1ge57",
        "weights_hash": "we16h75",
        "rounds": 1234,
        "simulated_s": 7200.0,
        "cpu_s": 1.25,
        "wall_s": 2.5,
        "metric": Metric("accuracy", best=0.9, final=0.85, higher_is_better=True),
        "messages": {
            "ping": Traffic(1000, 20_000),
            "model": Traffic(10, 979_000),
            "ack": Traffic(9, 1000),
        },
        "training_s": 5400.0,
        "trainings": Trainings(asked=20, computed=15),
        "interrupted": False,
        "out": "runs/small",
    }
    return Result(**values | changes)


def run(outcome: Result | None, metric: str = "accuracy", values: Any = ACCURACIES) -> Run:
    """A run of two hours with these evaluations."""
    times_s = np.linspace(1800, 7200, len(values))
    return Run(
        path=Path("runs/small"),
        spec={
            "name": "small",
            "seed": 3,
            "nodes": 1000,
            "protocol": {"name": "plexus"},
            "task": {"name": "digits"},
        },
        versions={},
        result=outcome,
        tables={
            "evaluations": {
                "simulated_s": times_s,
                "round": np.arange(len(values)),
                metric: np.array(values),
                "loss": np.ones(len(values)),
            },
            "rounds": {},
            "online": {"simulated_s": np.array([0.0, 3600.0]), "online": np.array([40, 60])},
        },
    )
