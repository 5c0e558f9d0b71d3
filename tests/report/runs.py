"""Runs that never happened, to be reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.runs.run import Run

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
        "messages": {"ping": Traffic(1000, 20_000), "model": Traffic(10, 979_000), "ack": Traffic(9, 1000)},
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


def arm_run(
    protocol: dict[str, Any] | str = "plexus",
    values: Any = ACCURACIES,
    seed: int = 1,
    *,
    outcome: Result | None = None,
    sent_gb: Any = None,
    training_h: Any = None,
    metric: str = "accuracy",
    higher_is_better: bool = True,
    finished: bool = True,
    tables: dict[str, Any] | None = None,
    **spec: Any,
) -> Run:
    """A run to be compared: evaluated every hour, by default sending 1 GB and training 10 h in each."""
    hours = np.arange(1, len(values) + 1, dtype=float)
    protocol = {"name": protocol} if isinstance(protocol, str) else protocol
    quality = Metric(metric, None, None, higher_is_better)
    evaluations = {
        "simulated_s": 3600 * hours,
        "round": np.arange(len(values)),
        metric: np.array(values, float),
        "sent_bytes": 1e9 * (hours if sent_gb is None else np.array(sent_gb, float)),
        "training_s": 3600 * (10 * hours if training_h is None else np.array(training_h, float)),
    }
    if outcome is None and finished:
        digest = f"{protocol}{seed}{list(values)}"
        outcome = result(metric=quality, simulated_s=3600.0 * len(values), digest=digest)
    tables = {"evaluations": evaluations, "rounds": {}, "online": {}} | (tables or {})
    return Run(
        path=Path(f"runs/{protocol['name']}-{seed}"),
        spec={
            "name": "some",
            "seed": seed,
            "nodes": 100,
            "hours": 4.0,
            "protocol": protocol,
            "task": {"name": "digits", "learning_rate": 0.1},
            "traces": {"availability": "fedscale"},
        }
        | spec,
        versions={"plexus": "0.1.0", "python": "3.11", "spec_digest": "5bec", "packages": {}},
        result=outcome,
        tables=tables,
    )
