"""Plain sampled averaging without a network: how far a task can get, and how fast an engine is.

    PLEXUS_DATA=DIR python benchmarks/sampled_averaging.py movielens --nodes 610 --rounds 10000
    PLEXUS_DATA=DIR python benchmarks/sampled_averaging.py movielens-biased --nodes 610 --rounds 2000
    PLEXUS_DATA=DIR python benchmarks/sampled_averaging.py digits-by-writer --nodes 355 --rounds 3000
    PLEXUS_DATA=DIR python benchmarks/sampled_averaging.py cifar10 --nodes 1000 --rounds 4500

Each round a seeded sample of nodes trains the global model, which becomes the mean of the results.
"""

from __future__ import annotations

import argparse
import time

from plexus.learn.engines import ENGINES, create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.tasks import TASKS, create_task
from plexus.rng import stream


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--sample", type=int, default=10)
    parser.add_argument("--every", type=int, default=500, help="rounds between evaluations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device")
    arguments = parser.parse_args()

    task = create_task(arguments.task, arguments.nodes, arguments.seed)
    engine, chosen = create_engine(arguments.engine, task, workers=arguments.workers, device=arguments.device)
    print(f"{arguments.task} on {chosen.name} ({chosen.device}): {chosen.reason}", flush=True)
    models = LazyModels(task, engine)
    model, started = models.initial(), time.perf_counter()
    for round in range(1, arguments.rounds + 1):
        rng = stream(arguments.seed, "sample", round)
        nodes = rng.sample(range(arguments.nodes), arguments.sample)
        trained = [models.train(model, node, round) for node in nodes]
        model = models.mean(trained, [models.samples(node) for node in nodes])
        if round % arguments.every == 0 or round == arguments.rounds:
            metrics, seconds = models.evaluate(model), time.perf_counter() - started
            print(f"round {round}: {metrics.name} {metrics.value:.4f} after {seconds:.0f} s", flush=True)
    costs = models.costs
    print(
        f"{costs.computed} trainings in {costs.training_s:.1f} s"
        f" ({1000 * costs.training_s / costs.computed:.3f} ms each),"
        f" {len(models.evaluated)} evaluations in {costs.evaluation_s:.1f} s,"
        f" weights {models.weights_hash(model)}"
    )
    models.close()


if __name__ == "__main__":
    main()
