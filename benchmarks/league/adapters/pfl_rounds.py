"""pfl-research: its FederatedAveraging on its simulated backend, with a PyTorch model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

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
)


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        with torch.no_grad():
            return {"loss": Weighted(self.loss(inputs, targets).item() * len(targets), len(targets))}


class Marks(TrainingProcessCallback):
    def __init__(self, round_done: Callable[[int], None]) -> None:
        self.round_done = round_done

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.round_done(central_iteration + 1)
        return False, Metrics()


def set_up(work: Work, given: int = 0) -> tuple[FederatedAveraging, SimulatedBackend, PyTorchModel]:
    torch.set_num_threads(1)
    np.random.seed(work.seed)
    inputs, targets = torch.from_numpy(work.inputs), torch.from_numpy(work.targets)

    def own_data(client: int) -> PyTorchTensorDataset:
        nonlocal given
        given += 1  # ten times a round, once to each client
        order = torch.from_numpy(work.orders(1 + (given - 1) // CLIENTS)[client])
        return PyTorchTensorDataset([inputs[client, order], targets[client, order]], user_id=str(client))

    clients = FederatedDataset(own_data, get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    net = Net()
    net.load_state_dict({name: torch.from_numpy(array) for name, array in work.initial.items()})
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    return FederatedAveraging(), SimulatedBackend(clients, clients), model


def run(
    work: Work,
    algorithm: FederatedAveraging,
    backend: SimulatedBackend,
    model: PyTorchModel,
    *callbacks: TrainingProcessCallback,
) -> Weights:
    # Evaluated in the first round alone.
    rounds = NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=work.rounds + 1,
        train_cohort_size=CLIENTS,
        val_cohort_size=None,
    )
    training = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH
    )
    algorithm.run(rounds, backend, model, training, callbacks=list(callbacks), send_metrics_to_platform=False)
    return {name: tensor.numpy() for name, tensor in model.pytorch_model.state_dict().items()}


def learn(work: Work, clock: Clock) -> Weights:
    return run(work, *set_up(work), Marks(clock.round_done))


if __name__ == "__main__":
    main(learn, "pfl", "torch")
