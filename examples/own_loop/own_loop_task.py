"""A training loop of one's own: noise on inputs, label smoothing, an optimiser that Plexus does not have."""

from dataclasses import replace

import torch
from torch.nn import functional

from plexus import create_task


def train(model, examples, context):
    """Trains `model` in place. What is drawn comes from the context, so that a run can be repeated."""
    optimiser = torch.optim.RMSprop(model.parameters(), lr=0.002 / context.round**0.25)
    for inputs, targets in context.batches(examples, epochs=3):
        noisy = inputs + 0.05 * torch.randn(inputs.shape, generator=context.generator)
        optimiser.zero_grad()
        functional.cross_entropy(model(noisy), targets, label_smoothing=0.05).backward()
        optimiser.step()


def build(nodes, seed):
    """The digits that come with Plexus, with this loop in the place of its optimiser."""
    return replace(create_task("digits", nodes, seed), optimiser=None, loop=train)
