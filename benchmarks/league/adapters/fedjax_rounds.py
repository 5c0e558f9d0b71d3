"""FedJAX: its federated averaging over its client data sets, with its default backend, which is jitted."""

from __future__ import annotations

from typing import Any

import fedjax
import jax
import jax.numpy as jnp

from benchmarks.league.work import BATCH, LEARNING_RATE, Clock, Weights, Work, main


def loss(weights: dict[str, jax.Array], batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(batch["x"] @ weights["0.weight"].T + weights["0.bias"])
    outputs = jax.nn.log_softmax(hidden @ weights["2.weight"].T + weights["2.bias"])
    return -jnp.take_along_axis(outputs, batch["y"][:, None], axis=1)[:, 0]


def set_up(work: Work) -> tuple[fedjax.FederatedAlgorithm, Any]:
    # Its own shuffling has one seed for all rounds or none at all: it is given the order.
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, skip_shuffle=True)
    averaging = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.grad(loss), fedjax.optimizers.sgd(LEARNING_RATE), fedjax.optimizers.sgd(1.0), batches
    )
    return averaging, averaging.init({name: jnp.asarray(array) for name, array in work.initial.items()})


def clients(work: Work, number: int) -> list[tuple[int, fedjax.ClientDataset, jax.Array]]:
    """What everybody has in round `number`; keys are for models that draw, which this one does not."""
    key = jax.random.PRNGKey(work.seed)
    everybody = enumerate(zip(work.inputs, work.targets, work.orders(number), strict=True))
    return [
        (client, fedjax.ClientDataset({"x": inputs[order], "y": targets[order]}), key)
        for client, (inputs, targets, order) in everybody
    ]


def learn(work: Work, clock: Clock) -> Weights:
    averaging, state = set_up(work)
    for number in range(1, work.rounds + 1):
        state, _ = averaging.apply(state, clients(work, number))
        jax.block_until_ready(state.params)
        clock.round_done(number)
    return state.params


if __name__ == "__main__":
    main(learn, "fedjax", "jax", "numpy")
