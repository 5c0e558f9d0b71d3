"""Plexus: train one model across many unreliable devices, with no server.

The Python API is what `__all__` lists: to run and read experiments (docs/python.md), to write tasks
(docs/own-task.md), protocols (docs/write-a-protocol.md) and reports (docs/report.md). Where the names live
inside is nobody's business but ours. Importing this package imports nothing else: each name is looked up
when it is first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from plexus.api import load, reproduce, simulate, simulate_many
    from plexus.errors import PlexusError, StopRun
    from plexus.experiment.progress import Tick
    from plexus.learn import partition
    from plexus.learn.optimiser import Adam, AdamW, Group, Sgd
    from plexus.learn.tabular import Schema, read_csv, read_schema
    from plexus.learn.task import MSE, TOP1, Context, Examples, Measure, Task
    from plexus.learn.tasks import create_task
    from plexus.learn.tasks.own import examples_from
    from plexus.protocol.api import (
        Aggregate,
        Aggregated,
        CancelTimer,
        Effect,
        Event,
        Merge,
        Node,
        Received,
        Report,
        Send,
        SetTimer,
        StopSending,
        TimerFired,
        Train,
        Trained,
        WentOffline,
        WentOnline,
    )
    from plexus.protocol.facts import AggregationCompleted, ModelUpdated
    from plexus.protocol.messages import Message
    from plexus.protocol.plexus import PlexusNode
    from plexus.protocol.view import Snapshot, View
    from plexus.report.arms import group, load_runs
    from plexus.report.comparison import summary_table
    from plexus.report.document import Picture, Section
    from plexus.report.page import write_report
    from plexus.report.plots import curves
    from plexus.rng import array_stream, stream
    from plexus.runs.result import Result
    from plexus.runs.run import Frame, Run
    from plexus.sim.own import Place, own_protocol
    from plexus.spec.experiment import ExperimentSpec, load_spec

_HOMES = {
    "plexus.api": ("load", "reproduce", "simulate", "simulate_many"),
    "plexus.errors": ("PlexusError", "StopRun"),
    "plexus.experiment.progress": ("Tick",),
    "plexus.learn": ("partition",),
    "plexus.learn.tabular": ("Schema", "read_csv", "read_schema"),
    "plexus.learn.optimiser": ("Adam", "AdamW", "Group", "Sgd"),
    "plexus.learn.task": ("MSE", "TOP1", "Context", "Examples", "Measure", "Task"),
    "plexus.learn.tasks": ("create_task",),
    "plexus.learn.tasks.own": ("examples_from",),
    "plexus.protocol.api": (
        "Aggregate", "Aggregated", "CancelTimer", "Effect", "Event", "Merge", "Node", "Received", "Report",
        "Send", "SetTimer", "StopSending", "TimerFired", "Train", "Trained", "WentOffline", "WentOnline",
    ),
    "plexus.protocol.facts": ("AggregationCompleted", "ModelUpdated"),
    "plexus.protocol.messages": ("Message",),
    "plexus.protocol.plexus": ("PlexusNode",),
    "plexus.protocol.view": ("Snapshot", "View"),
    "plexus.report.arms": ("group", "load_runs"),
    "plexus.report.comparison": ("summary_table",),
    "plexus.report.document": ("Picture", "Section"),
    "plexus.report.page": ("write_report",),
    "plexus.report.plots": ("curves",),
    "plexus.rng": ("array_stream", "stream"),
    "plexus.runs.result": ("Result",),
    "plexus.runs.run": ("Frame", "Run"),
    "plexus.sim.own": ("Place", "own_protocol"),
    "plexus.spec.experiment": ("ExperimentSpec", "load_spec"),
}  # fmt: skip

__all__ = [
    "MSE", "TOP1", "Adam", "AdamW", "Aggregate", "Aggregated", "AggregationCompleted", "CancelTimer",
    "Context", "Effect", "Event",
    "Examples", "ExperimentSpec", "Frame", "Group", "Measure", "Merge", "Message", "ModelUpdated", "Node",
    "Picture",
    "Place", "PlexusError", "PlexusNode", "Received", "Report", "Result", "Run", "Schema", "Section",
    "Send", "SetTimer", "Sgd", "Snapshot",
    "StopRun", "StopSending", "Task", "Tick", "TimerFired", "Train", "Trained", "View", "WentOffline",
    "WentOnline", "__version__", "array_stream", "create_task", "curves", "examples_from", "group", "load",
    "load_runs", "load_spec", "own_protocol", "partition", "read_csv", "read_schema", "reproduce", "simulate",
    "simulate_many", "stream", "summary_table", "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            home = import_module(module)
            # Of a package a module may be meant, which is an attribute once it is imported.
            found = getattr(home, name) if hasattr(home, name) else import_module(f"{module}.{name}")
            globals()[name] = found
            return found
    raise AttributeError(f"module 'plexus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
