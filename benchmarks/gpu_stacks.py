"""What a GPU takes for one local training of GN-LeNet in a stack, by kernels and by vmap: ms a client.

    python benchmarks/gpu_stacks.py 100 13

The recorded training alone is timed, best of five, on images without meaning; batches are drawn beforehand.
"""

from __future__ import annotations

import sys

import torch

from plexus.bench.training import bench_task
from plexus.learn.engines import Precision, stacked
from plexus.learn.engines.stacked import RecordedStack, StackedEngine

REPEATS = 5


def ms_a_client(clients: int, precision: Precision) -> float:
    task = bench_task("cifar10", max(clients, 100), 1, True)
    engine = StackedEngine(task, "cuda", precision=precision)
    inputs, targets = engine.trainer.data.stacked([task.draw(node, 1) for node in range(clients)])
    stack = engine._stack(clients, len(targets))
    assert isinstance(stack, RecordedStack)
    scale = torch.ones(clients, dtype=torch.float64, device="cuda")
    stack.train(torch.stack([engine.initial] * clients), inputs, targets, scale)
    assert stack._graph is not None
    taken_ms = []
    for _ in range(REPEATS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        stack._graph.replay()
        stack._graph.replay()
        ended.record()
        torch.cuda.synchronize()
        taken_ms.append(began.elapsed_time(ended) / 2 / clients)
    return min(taken_ms)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu_stacks.py: this machine has no CUDA GPU")
    print(torch.cuda.get_device_name(), torch.__version__)
    sizes = [int(word) for word in sys.argv[1:]] or [100, 13]
    for precision in ("tf32", "bf16"):
        for clients in sizes:
            print(
                f"kernels {precision}, {clients} clients: {ms_a_client(clients, precision):.3f} ms a client"
            )
    stacked.find_spec = lambda name: None  # as where Triton is not installed
    for clients in sizes:
        print(f"vmap, {clients} clients: {ms_a_client(clients, 'tf32'):.3f} ms a client")


if __name__ == "__main__":
    main()
