"""Run directories as runs leave them, without running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from plexus.runs.directory import RunDirectory
from plexus.runs.result import Result
from plexus.spec import toml
from tests.report.runs import arm_run


def save(path: Path, outcome: Result | None = None, *arguments: Any, **changes: Any) -> None:
    """As `arm_run`, in a directory; without an outcome the run was killed. What is final is the last row."""
    run = arm_run(*arguments, outcome=outcome, finished=outcome is not None, **changes)
    with RunDirectory(path, toml.dumps(run.spec), path.name) as directory:
        columns = run.tables["evaluations"]
        for row in zip(*columns.values(), strict=True):
            directory.recorder.record("evaluations", **dict(zip(columns, row, strict=True)))
        if outcome is not None:
            values = list(map(float, columns.get(outcome.metric.name, ())))
            final = values[-1] if values else None
            directory.finish(replace(outcome, metric=replace(outcome.metric, final=final)))
