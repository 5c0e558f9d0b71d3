"""A user's project whose code fails, in a place that can be chosen."""

from __future__ import annotations

from pathlib import Path

FAULTS = ("building", "data", "prepare", "forward", "training", "loss", "evaluation", "measure")

MODULE = """
import os
from dataclasses import replace
from functools import partial

from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from plexus.learn.tasks.own import examples_from
from plexus.learn.tasks import create_task


class Model(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault, self.calls = fault, 0
        self.layer = nn.Linear(64, 10)
        if fault == "building":
            raise KeyError("out of order")  # building

    def forward(self, inputs):
        self.calls += 1
        if self.fault == "forward":
            raise KeyError("out of order")  # forward
        if self.fault == "training" and self.training:
            raise KeyError("out of order")  # training
        if self.fault == "evaluation" and not self.training:
            raise KeyError("out of order")  # evaluation
        if self.fault == "later" and self.calls > 12:
            raise KeyError("out of order")  # later
        if self.fault == "death":
            os._exit(7)
        return self.layer(inputs)


def prepare(fault, inputs):
    if fault == "prepare":
        raise KeyError("out of order")  # prepare
    return inputs


def loss(fault, outputs, targets):
    if fault == "loss":
        raise KeyError("out of order")  # loss
    return functional.cross_entropy(outputs, targets)


def measured(fault, plain, outputs, targets):
    if fault == "measure":
        raise KeyError("out of order")  # measure
    return plain(outputs, targets)


class Data(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, row):
        raise KeyError("out of order")  # data


def build(nodes, seed, fault):
    task = create_task("digits", nodes, seed)
    if fault == "data":
        examples_from(Data())
    per_example = partial(measured, fault, task.measure.per_example)
    return replace(
        task,
        name="faulty",
        build_model=partial(Model, fault),
        prepare=partial(prepare, fault),
        loss=partial(loss, fault),
        measure=replace(task.measure, per_example=per_example),
    )
"""

SPEC = """
name = "faulty"
nodes = 3
hours = 1
evaluation = {{ every_rounds = 2 }}
protocol = {{ sample_size = 3, start_delay_s = 2.0 }}
task = {{ name = "faulty_{fault}:build", fault = "{fault}" }}
traces = {{ availability = "none" }}
"""


def write_project(folder: Path, fault: str) -> Path:
    """The spec of a project that fails like this."""
    (folder / f"faulty_{fault}.py").write_text(MODULE)
    spec = folder / "faulty.toml"
    spec.write_text(SPEC.format(fault=fault))
    return spec


def complaint(fault: str) -> str:
    """What a message about it ends with: the exception, and the place."""
    lines = MODULE.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {fault}"))
    return f"KeyError: 'out of order' (faulty_{fault}.py:{line}, in {_function(fault)})"


def _function(fault: str) -> str:
    names = {"building": "__init__", "data": "__getitem__", "measure": "measured"}
    return names.get(fault, fault if fault in ("prepare", "loss") else "forward")
