"""A reference: what one writes in plain PyTorch, client after client."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.league.work import BATCH, CLASSES, HIDDEN, LEARNING_RATE, PIXELS, Clock, Weights, Work, main


def learn(work: Work, clock: Clock) -> Weights:
    torch.set_num_threads(1)
    inputs, targets = torch.from_numpy(work.inputs), torch.from_numpy(work.targets)
    module = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    weights = {name: torch.from_numpy(array) for name, array in work.initial.items()}
    for number in range(1, work.rounds + 1):
        totals = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        orders = torch.from_numpy(work.orders(number))
        for own_inputs, own_targets, order in zip(inputs, targets, orders, strict=True):
            module.load_state_dict(weights)
            optimiser = torch.optim.SGD(module.parameters(), LEARNING_RATE)
            for rows in order.split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(own_inputs[rows]), own_targets[rows]).backward()
                optimiser.step()
            for name, tensor in module.state_dict().items():
                totals[name] += tensor
        weights = {name: total / len(inputs) for name, total in totals.items()}
        clock.round_done(number)
    return weights


if __name__ == "__main__":
    main(learn, "torch")
