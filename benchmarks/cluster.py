"""What workers on a Ray cluster are worth: one and two of them, and `inline`, wave by wave in turn.

    python benchmarks/cluster.py                                   # digits
    python benchmarks/cluster.py --task cifar10 --clients 20       # GN-LeNet, on random images

The two machines are processes of this one, which should have two free cores; weights are compared bit for
bit. Prints milliseconds a training: the median and the fastest wave by the clock, and the median of what
cores computed, for this process and the busiest worker, which tells less of others who use the cores too.
`speedup` is one worker's time divided by two workers'.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

from plexus.bench.training import bench_task
from plexus.learn.engines import Engine, LocalTraining, create_engine

WORKERS = {"one worker": 1, "two workers": 2}
Waves = dict[str, list[tuple[float, float]]]
"""By engine: how long each wave took by the clock, and how long the cores were busy at least, in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", default="digits", choices=("digits", "cifar10"))
    parser.add_argument("--engine", default="ray", choices=("ray", "ray-stacked"))
    parser.add_argument("--clients", type=int, default=16, help="trainings in a wave")
    parser.add_argument("--waves", type=int, default=15)
    options = parser.parse_args()
    task = bench_task(options.task, 4 * options.clients, 1, random_data=options.task == "cifar10")
    # Room for three actors; those that wait take no time.
    machine = {"num_cpus": 2, "object_store_memory": 200 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**machine, "include_dashboard": False})
    cluster.add_node(**machine)
    engines: dict[str, Engine] = {"inline": create_engine("inline", task)[0]}
    for name, workers in WORKERS.items():
        engines[name] = create_engine(options.engine, task, workers=workers, address=cluster.address)[0]
    try:
        taken = waves(engines, options.clients, options.waves, exact=options.engine == "ray")
    finally:
        for engine in reversed(engines.values()):
            engine.close()
        cluster.shutdown()
    found = {}
    for name, each in taken.items():
        clock_s, cores_s = zip(*each, strict=True)
        seconds = {"median": median(clock_s), "fastest": min(clock_s), "cores": median(cores_s)}
        found[name] = {kind: 1000 * value / options.clients for kind, value in seconds.items()}
    one, two = (found[name] for name in WORKERS)
    found["speedup"] = {kind: one[kind] / two[kind] for kind in one}
    for name, numbers in found.items():
        print(json.dumps({name: {kind: round(value, 3) for kind, value in numbers.items()}}))


def waves(engines: dict[str, Engine], clients: int, count: int, exact: bool) -> Waves:
    """Nodes differ from wave to wave, as in sessions."""
    taken: Waves = {name: [] for name in engines}
    base, nodes = engines["inline"].initial, 4 * clients
    for round in range(-4, count):  # the first four are to warm up: every node is given away once
        drawn = range((round + 4) * clients, (round + 5) * clients)
        jobs = [LocalTraining(base, (7 * each + round) % nodes, each) for each in drawn]
        trained = {}
        for name, engine in engines.items():
            workers_s, own_s, began_s = cpu_s(engine), time.process_time(), time.perf_counter()
            trained[name] = engine.train(jobs)
            took_s, own_s = time.perf_counter() - began_s, time.process_time() - own_s
            busiest_s = max(after - before for before, after in zip(workers_s, cpu_s(engine), strict=True))
            if round >= 0:
                taken[name].append((took_s, own_s + busiest_s))
        for found in trained.values():
            equal = map(torch.equal, trained["inline"], found)
            assert not exact or all(equal), "the weights differ"
    return taken


def cpu_s(engine: Any) -> list[float]:
    """Of each worker, so far."""
    workers = getattr(engine, "_workers", ())
    return ray.get([each.actor.__ray_call__.remote(lambda _: time.process_time()) for each in workers]) or [0]


if __name__ == "__main__":
    main()
