"""A reference: all clients in one stack with `torch.func.vmap`, written for this one network."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from benchmarks.league.work import BATCH, LEARNING_RATE, Clock, Weights, Work, main

Tensors = dict[str, Tensor]


def loss(weights: Tensors, inputs: Tensor, targets: Tensor) -> Tensor:
    hidden = torch.relu(inputs @ weights["0.weight"].T + weights["0.bias"])
    return cross_entropy(hidden @ weights["2.weight"].T + weights["2.bias"], targets)


def learn(work: Work, clock: Clock) -> Weights:
    torch.set_num_threads(1)
    inputs, targets = torch.from_numpy(work.inputs), torch.from_numpy(work.targets)
    clients = len(targets)
    own = torch.arange(clients)[:, None]
    gradients = vmap(grad(loss))
    weights = {name: torch.from_numpy(array) for name, array in work.initial.items()}
    for number in range(1, work.rounds + 1):
        stack = {name: tensor.expand(clients, *tensor.shape) for name, tensor in weights.items()}
        for rows in torch.from_numpy(work.orders(number)).split(BATCH, dim=1):
            found = gradients(stack, inputs[own, rows], targets[own, rows])
            stack = {name: tensor - LEARNING_RATE * found[name] for name, tensor in stack.items()}
        weights = {name: tensor.mean(dim=0) for name, tensor in stack.items()}
        clock.round_done(number)
    return weights


if __name__ == "__main__":
    main(learn, "torch")
