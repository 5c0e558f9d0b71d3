"""Run directories for the dashboard: real sessions, small and without learning where that will do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from plexus.experiment.recording import Recording
from plexus.experiment.simulation import planned
from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.runs.directory import RunDirectory
from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.sim.protocols import PROTOCOLS
from plexus.sim.session import Setting, SymbolicModels, assemble
from plexus.spec.experiment import parse_spec
from plexus.traces.build import build_world
from plexus.traces.world import training_time_s

SPEC = """
name = "{name}"
seed = {seed}
nodes = 30
hours = {hours}
[task]
name = "digits"
[protocol]
sample_size = {sample_size}
"""


CUT = """
[[faults]]
kind = "partition"
from_h = 0.25
to_h = 0.5
nodes = [3]
[[faults]]
kind = "crash"
from_h = 0.4
to_h = 0.6
nodes = 0.1
[[attackers]]
behaviour = "flip"
nodes = [4, 9]
"""


def write_run(
    out: Path,
    *,
    seed: int = 1,
    sample_size: int = 5,
    until_s: float = 3600,
    finish: bool = True,
    faults: str = "",
    about: dict[str, Any] | None = None,
    hours: int = 1,
    name: str | None = None,
) -> None:
    """A session of 30 nodes, recorded as `plexus run` does, up to `until_s`; its metric is made up."""
    text = SPEC.format(name=name or out.name, seed=seed, sample_size=sample_size, hours=hours) + faults
    spec = parse_spec(text, "spec")
    world = build_world(spec.traces, spec.nodes, spec.seed, Path())
    durations_s = [training_time_s(device, 5, 20) for device in world.devices]
    setting = Setting(world, SymbolicModels(346_000), None, durations_s.__getitem__, spec.seed)
    with RunDirectory(out, spec.to_toml(), spec.digest(), about=about) as directory:
        recorder = directory.recorder
        recording = Recording(recorder, 3600 * spec.hours)
        last: dict[str, Any] = {}

        def observe(now_s: float, node: int, fact: Fact) -> None:
            recording.on_fact(now_s, node, fact, runtime)
            if isinstance(fact, AggregationCompleted):
                last.update(measured(now_s, fact.round, runtime))
                recorder.record("evaluations", **last)

        cast = PROTOCOLS["plexus"].build(setting, spec.protocol.parameters)
        runtime = assemble(setting, cast, observe, recording, planned(spec, "global model"))
        recording.begin(cast, setting.training_s)
        for step in range(math.ceil(until_s / 60)):
            runtime.run(60.0 * step)
            recording.look(60.0 * step, runtime)
        if finish:
            directory.finish(outcome(runtime, out, last.get("accuracy")))


def measured(now_s: float, round: int, runtime: Any) -> dict[str, Any]:
    accuracy = 0.9 * (1 - math.exp(-round / 20))
    return {
        "simulated_s": now_s,
        "round": round,
        "accuracy": accuracy,
        "loss": 1 - accuracy,
        "sent_bytes": sum(runtime.accounts.sent_bytes),
        "training_s": sum(runtime.accounts.training_s),
    }


def outcome(runtime: Any, out: Path, final: float | None) -> Result:
    return Result(
        digest=runtime.kernel.digest(),
        weights_hash="",
        rounds=60,
        simulated_s=runtime.kernel.now,
        cpu_s=1.0,
        wall_s=1.0,
        metric=Metric("accuracy", 0.9, final, True),
        messages={name: Traffic(**each) for name, each in runtime.accounts.table().items()},
        training_s=sum(runtime.accounts.training_s),
        trainings=Trainings(0, 0),
        interrupted=False,
        out=str(out),
    )
