"""A task for `endurance.py`: digits, with a rest before every training, so that peers are mostly idle."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch.nn import functional

from plexus import Context, Examples, Task, create_task

REST_S = 2.0


def train(model: torch.nn.Module, examples: Examples, context: Context) -> None:
    """Rest, then one epoch."""
    time.sleep(REST_S)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in context.batches(examples, epochs=1):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimiser.step()


def build(nodes: int, seed: int) -> Task:
    return replace(create_task("digits", nodes, seed), optimiser=None, loop=train)
