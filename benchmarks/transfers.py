"""What a simulated transfer costs, and how far the sharing rules are from max-min fairness.

    python benchmarks/transfers.py speed     # µs of CPU per flow, heap operations included
    python benchmarks/transfers.py ratios    # how long flows take, relative to `fair`

Bandwidths are log-normal around FedScale's median (6.1 Mbit/s), the same up and down; a model has
346 KB. A wave starts when everything of the wave before has arrived. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random
from typing import Any

from plexus.rng import stream
from plexus.sim.network import Transfers
from plexus.sim.sharing import RULES, Flow

MODEL_BYTES = 346_000.0
DEGREE = 10
SAMPLE = 13
SUCCESS_FRACTION = 0.8

Batch = tuple[float, list[Flow]]
"""Flows that begin together, so many seconds after their wave."""
Wave = list[Batch]


class Kernel:
    """Just enough virtual time: a heap of entries, cancelled by emptying them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.entries: list[list[Any]] = []
        self.entered = 0

    def at(self, time_s: float, what: Any) -> list[Any]:
        self.entered += 1
        entry = [time_s, self.entered, what]
        heappush(self.entries, entry)
        return entry

    @staticmethod
    def cancel(entry: list[Any]) -> None:
        entry[2] = None

    def run(self, transfers: Transfers) -> None:
        entries = self.entries
        while entries:
            time_s, _, what = heappop(entries)
            if what is None:
                continue
            self.now = time_s
            if type(what) is list:
                transfers.begin(what, time_s)
            else:
                transfers.completed(what, time_s)


def bandwidths_bytes_per_s(nodes: int, rng: Random) -> list[float]:
    return [760e3 * rng.lognormvariate(0, 1.1) for _ in range(nodes)]


def regular_graph(nodes: int, rng: Random) -> list[list[int]]:
    """Each node's ten neighbours: five random cycles through all nodes (few pairs occur twice)."""
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for _ in range(DEGREE // 2):
        cycle = rng.sample(range(nodes), nodes)
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            neighbours[a].append(b)
            neighbours[b].append(a)
    return neighbours


def dense(nodes: int, rng: Random, capacities: list[float]) -> Iterator[Wave]:
    """Every node sends to all its neighbours, all at one instant and told of in one call."""
    graph = regular_graph(nodes, rng)
    while True:
        yield [(0.0, [Flow(a, b, MODEL_BYTES) for a in range(nodes) for b in graph[a]])]


def dense_by_node(nodes: int, rng: Random, capacities: list[float]) -> Iterator[Wave]:
    """The same instant, but each node's flows in a call of their own."""
    graph = regular_graph(nodes, rng)
    while True:
        yield [(0.0, [Flow(a, b, MODEL_BYTES) for b in graph[a]]) for a in range(nodes)]


def dense_trained(nodes: int, rng: Random, capacities: list[float]) -> Iterator[Wave]:
    """Every node sends when its training ends: log-normal around 12 s."""
    graph = regular_graph(nodes, rng)
    while True:
        yield [
            (12 * rng.lognormvariate(0, 0.8), [Flow(a, b, MODEL_BYTES) for b in graph[a]])
            for a in range(nodes)
        ]


def dense_uneven(nodes: int, rng: Random, capacities: list[float]) -> Iterator[Wave]:
    """As `dense`, with sizes that differ by up to a tenth: no two flows end together."""
    graph = regular_graph(nodes, rng)
    while True:
        pairs = [(a, b) for a in range(nodes) for b in graph[a]]
        yield [(0.0, [Flow(a, b, MODEL_BYTES * rng.uniform(1, 1.1)) for a, b in pairs])]


def star(nodes: int, rng: Random, capacities: list[float]) -> Iterator[Wave]:
    """A round of Plexus: thirteen send to the best-connected of the next sample, which sends on."""
    while True:
        sample = rng.sample(range(nodes), SAMPLE)
        following = rng.sample(range(nodes), SAMPLE)
        aggregator = max(following, key=capacities.__getitem__)
        yield [(0.0, [Flow(node, aggregator, MODEL_BYTES) for node in sample])]
        yield [(0.0, [Flow(aggregator, node, MODEL_BYTES) for node in following])]


Workload = Callable[[int, Random, list[float]], Iterator[Wave]]
WORKLOADS: dict[str, Workload] = {
    "dense": dense,
    "dense_by_node": dense_by_node,
    "dense_trained": dense_trained,
    "dense_uneven": dense_uneven,
    "star": star,
}


class Run:
    """A number of waves of a workload under one rule."""

    def __init__(self, rule: str, workload: str, nodes: int, waves: int) -> None:
        rng = stream(1, "benchmark", workload)
        capacities = bandwidths_bytes_per_s(nodes, rng)
        kernel = Kernel()
        transfers = Transfers(RULES[rule](capacities, capacities), kernel.at, kernel.cancel)
        self.durations_s: list[float] = []
        self.wave_s: list[float] = []
        self.most_s: list[float] = []
        """Until a success fraction of the wave has arrived."""
        self.cpu_s = 0.0
        work = WORKLOADS[workload](nodes, rng, capacities)
        for _ in range(waves):
            began_s = kernel.now
            began_cpu_s = time.process_time()
            wave = next(work)
            for delay_s, flows in wave:
                kernel.at(began_s + delay_s, flows)
            kernel.run(transfers)
            self.cpu_s += time.process_time() - began_cpu_s
            self.wave_s.append(kernel.now - began_s)
            arrived_s = []
            for delay_s, flows in wave:
                assert all(flow.remaining_bytes == 0 for flow in flows)
                self.durations_s += [flow.since_s - began_s - delay_s for flow in flows]
                arrived_s += [flow.since_s - began_s for flow in flows]
            self.most_s.append(sorted(arrived_s)[int(SUCCESS_FRACTION * len(arrived_s)) - 1])
        self.flows = len(self.durations_s)
        self.entries_per_flow = kernel.entered / self.flows


def speed(rules: list[str], workloads: list[str], nodes: int, waves: int, repeat: int) -> Any:
    """The best of `repeat` runs each: other load on the machine only ever adds."""
    figures: dict[str, Any] = {}
    for rule in rules:
        for workload in workloads:
            # A wave of `star` is a thousandth of a dense one: enough of them to measure.
            count = waves * 500 if workload == "star" else waves
            runs = [Run(rule, workload, nodes, count) for _ in range(repeat)]
            figures.setdefault(rule, {})[workload] = {
                "us_per_flow": round(min(run.cpu_s for run in runs) / runs[0].flows * 1e6, 2),
                "kernel_entries_per_flow": round(runs[0].entries_per_flow, 2),
                "flows": runs[0].flows,
            }
    return figures


def ratios(rules: list[str], workloads: list[str], nodes: int, waves: int) -> Any:
    """How much longer than under `fair` a flow takes: the distribution over all flows."""
    figures: dict[str, Any] = {}
    for workload in workloads:
        count = waves * 500 if workload == "star" else waves
        oracle = Run("fair", workload, nodes, count)
        for rule in rules:
            run = Run(rule, workload, nodes, count)
            each = [a / b for a, b in zip(run.durations_s, oracle.durations_s, strict=True)]
            cuts = statistics.quantiles(each, n=100, method="inclusive")
            figures.setdefault(workload, {})[rule] = {
                "flows": run.flows,
                **{f"p{p}": round(cuts[p - 1], 3) for p in (1, 5, 25, 50, 75, 95, 99)},
                "max": round(max(each), 3),
                "mean": round(statistics.fmean(each), 3),
                "until_80_percent_arrived": round(sum(run.most_s) / sum(oracle.most_s), 3),
                "until_all_arrived": round(sum(run.wave_s) / sum(oracle.wave_s), 3),
            }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["speed", "ratios"])
    parser.add_argument("--rule", action="append", choices=list(RULES))
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS))
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--waves", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rules = options.rule or ["shared", "fifo"]
    if options.what == "speed":
        workloads = options.workload or list(WORKLOADS)
        figures = speed(rules, workloads, options.nodes, options.waves, options.repeat)
    else:
        # `fair` takes a minute for a dense wave of 1000 nodes, so not everything by default.
        workloads = options.workload or ["dense", "dense_trained", "star"]
        figures = ratios(rules, workloads, options.nodes, options.waves)
    print(json.dumps({"what": options.what, "nodes": options.nodes, "figures": figures}, indent=2))


if __name__ == "__main__":
    main()
