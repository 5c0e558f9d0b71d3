"""What workers on a Ray cluster are worth: one and two of them, and `inline`, wave by wave in turn.

    python benchmarks/cluster.py                                   # digits
    python benchmarks/cluster.py --task cifar10 --clients 20       # GN-LeNet, on random images

The two machines are processes of this one, which must have two free cores. Weights are compared bit for bit.
Times are milliseconds a training, medians over the waves: by the clock, and of all processors together, this
process included. `speedup` is one worker's time by the clock divided by two workers', the median over waves.
Where others use the cores too, the clock tells of them; the processors' time does not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from ray.cluster_utils import Cluster

from plexus.bench.training import bench_task
from plexus.learn.engines import Engine, LocalTraining, create_engine

Seconds = dict[str, list[float]]
WORKERS = {"one worker": 1, "two workers": 2}


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
        times, cpu = waves(engines, options.clients, options.waves, exact=options.engine == "ray")
    finally:
        for engine in reversed(engines.values()):
            engine.close()
        cluster.shutdown()
    kinds = {"ms": times, "cpu_ms": cpu}
    found = {
        f"{name}_{kind}": 1000 * statistics.median(each) / options.clients
        for kind, table in kinds.items()
        for name, each in table.items()
    }
    one, two = (times[name] for name in WORKERS)
    found["speedup"] = statistics.median(a / b for a, b in zip(one, two, strict=True))
    print(json.dumps({key.replace(" ", "_"): round(value, 3) for key, value in found.items()}))


def waves(engines: dict[str, Engine], clients: int, count: int, exact: bool) -> tuple[Seconds, Seconds]:
    """How long each engine took for each wave, by the clock and of processors. Nodes differ from wave to
    wave, as in sessions."""
    times: Seconds = {name: [] for name in engines}
    cpu: Seconds = {name: [] for name in engines}
    base, nodes = engines["inline"].initial, 4 * clients
    for round in range(-4, count):  # the first four are to warm up: every node is given away once
        drawn = range((round + 4) * clients, (round + 5) * clients)
        jobs = [LocalTraining(base, (7 * each + round) % nodes, each) for each in drawn]
        trained = {}
        for name, engine in engines.items():
            began_s, before_s = time.perf_counter(), time.process_time() + engine.workers_cpu_s
            trained[name] = engine.train(jobs)
            if round >= 0:
                times[name].append(time.perf_counter() - began_s)
                cpu[name].append(time.process_time() + engine.workers_cpu_s - before_s)
        for found in trained.values():
            equal = map(torch.equal, trained["inline"], found)
            assert not exact or all(equal), "the weights differ"
    return times, cpu


if __name__ == "__main__":
    main()
