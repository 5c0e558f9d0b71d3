"""An app whose result is known: each client adds its own number, and a round adds their mean."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

CLIENTS, ROUNDS = 2, 3
server_app = ServerApp()
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    content = {
        "arrays": ArrayRecord([weights + float(context.node_config["partition-id"])]),
        "metrics": MetricRecord({"num-examples": 1}),
    }
    return Message(RecordDict(content), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    result = strategy.start(grid, ArrayRecord([np.zeros(1)]), num_rounds=ROUNDS)
    (weights,) = result.arrays.to_numpy_ndarrays()
    print(f"\nthe league's result: {weights[0]:.3f}")
