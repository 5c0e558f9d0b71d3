"""Flower: a ServerApp with its FedAvg strategy and ClientApps in its simulation engine, which is Ray."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from benchmarks.league.work import (
    BATCH,
    CLASSES,
    CLIENTS,
    HIDDEN,
    LEARNING_RATE,
    PIXELS,
    Clock,
    Weights,
    Work,
    main,
    make_work,
)

client_app = ClientApp()


@cache
def set_up(seed: int) -> tuple[Work, nn.Module]:
    """Once in every process of Ray's, which trains many clients."""
    torch.set_num_threads(1)
    return make_work(seed, 0), nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    number, client = message.content["config"]["server-round"], context.node_config["partition-id"]
    seed = int(os.environ["LEAGUE_SEED"])
    work, module = set_up(seed)
    inputs, targets = torch.from_numpy(work.inputs[client]), torch.from_numpy(work.targets[client])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    for rows in torch.from_numpy(work.orders(number)[client]).split(BATCH):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()
        optimiser.step()
    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"num-examples": len(targets)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


def learn(work: Work, clock: Clock) -> Weights:
    os.environ["LEAGUE_SEED"] = str(work.seed)
    found: dict[str, np.ndarray] = {}
    server_app = ServerApp()

    def round_done(number: int, arrays: ArrayRecord) -> None:
        clock.round_done(number)

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        initial = ArrayRecord({name: torch.from_numpy(array) for name, array in work.initial.items()})
        result = strategy.start(grid, initial, num_rounds=work.rounds, evaluate_fn=round_done)
        tensors = result.arrays.to_torch_state_dict()
        found.update({name: tensor.numpy() for name, tensor in tensors.items()})

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, CLIENTS, backend_config=resources)
    return found


if __name__ == "__main__":
    # Under its own name: Ray's processes import the client from there.
    from benchmarks.league.adapters import flower_rounds

    main(flower_rounds.learn, "flwr", "ray", "torch")
