"""Plexus' learning alone: the engine and the lazy models that a simulated session has, without the session.

What most of the others do, who simulate neither time nor a network.
"""

from __future__ import annotations

import plexus
from benchmarks.league.adapters.plexus_simulation import build
from benchmarks.league.work import CLIENTS, Clock, Weights, Work, main
from plexus.learn.engines import create_engine
from plexus.learn.graph import LazyModels


def learn(work: Work, clock: Clock) -> Weights:
    task = build(CLIENTS, work.seed)
    engine, _ = create_engine("auto", task, expected=CLIENTS * work.rounds)
    models = LazyModels(task, engine)
    model = models.initial()
    for number in range(1, work.rounds + 1):
        trained = [models.train(model, client, number) for client in range(CLIENTS)]
        model = models.mean(trained, [1] * CLIENTS)
        if number in (clock.first, clock.last):
            models.weights(model)  # computed now, and not when somebody asks
        clock.round_done(number)
    weights = {name: tensor.numpy() for name, tensor in models.weights(model).items()}
    models.close()
    return weights


if __name__ == "__main__":
    main(learn, "torch", plexus=plexus.__version__)
