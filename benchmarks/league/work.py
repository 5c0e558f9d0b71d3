"""The work that everybody in the league does, and the clock it is measured by. Needs numpy and psutil only.

Ten clients have a hundred handwritten digits each. In every round each takes the average of the last one,
goes once through its digits in an order that is newly drawn, twenty at a time (five steps of SGD), and the
ten results are averaged. How that is done is up to an adapter; it says when a round is done.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "src" / "plexus" / "learn" / "tasks" / "digits.npz"
"""The images and the order of scikit-learn's `load_digits`."""

CLIENTS, EXAMPLES, BATCH = 10, 100, 20
PIXELS, HIDDEN, CLASSES = 64, 64, 10
LEARNING_RATE = 0.1

Weights = Mapping[str, Any]
"""By the names of a torch `Sequential` of Linear, ReLU, Linear; matrices have a row per output."""
SHAPES = {
    "0.weight": (HIDDEN, PIXELS),
    "0.bias": (HIDDEN,),
    "2.weight": (CLASSES, HIDDEN),
    "2.bias": (CLASSES,),
}


@dataclass(frozen=True)
class Work:
    """The data of all clients, what they begin with, and how many rounds there are."""

    seed: int
    rounds: int
    inputs: np.ndarray
    """Client, example, pixel."""
    targets: np.ndarray
    """Client, example."""
    test_inputs: np.ndarray
    test_targets: np.ndarray
    initial: dict[str, np.ndarray]

    def orders(self, number: int) -> np.ndarray:
        """For every client, the order in which it goes through its examples in round `number`.

        For all that can be told; the others draw their own.
        """
        rows = np.tile(np.arange(EXAMPLES), (CLIENTS, 1))
        return np.random.default_rng((self.seed, number)).permuted(rows, axis=1)

    def loss_and_accuracy(self, weights: Weights) -> tuple[float, float]:
        """On the test set, computed here for everybody alike."""
        first, bias, second, last = (np.asarray(weights[name], np.float64) for name in SHAPES)
        hidden = np.maximum(self.test_inputs @ first.T + bias, 0)
        outputs = hidden @ second.T + last
        outputs -= outputs.max(axis=1, keepdims=True)
        log_sums = np.log(np.exp(outputs).sum(axis=1))
        rows = np.arange(len(outputs))
        loss = float((log_sums - outputs[rows, self.test_targets]).mean())
        return loss, float((outputs.argmax(axis=1) == self.test_targets).mean())


def make_work(seed: int, rounds: int) -> Work:
    """The same for everybody: which digits are whose, and the first weights."""
    rng = np.random.default_rng(seed)
    with np.load(DIGITS) as source:
        order = rng.permutation(len(source["digits"]))
        inputs = (source["pixels"][order] / 16).astype(np.float32).reshape(-1, PIXELS)
        targets = source["digits"][order].astype(np.int64)
    trained = CLIENTS * EXAMPLES
    reach = PIXELS**-0.5  # as torch does by default; both layers have as many inputs
    initial = {name: rng.uniform(-reach, reach, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return Work(
        seed,
        rounds,
        inputs[:trained].reshape(CLIENTS, EXAMPLES, PIXELS),
        targets[:trained].reshape(CLIENTS, EXAMPLES),
        inputs[trained:],
        targets[trained:],
        initial,
    )


class Clock:
    """What rounds cost between two of them: of this process and all that it started."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._at: dict[int, tuple[float, float]] = {}

    def round_done(self, number: int) -> None:
        """To be called by an adapter when round `number`, counted from 1, has its average."""
        if number in (self.first, self.last):
            self._at.setdefault(number, (cpu_s(), time.perf_counter()))

    def costs(self) -> dict[str, float]:
        (cpu, wall), (later_cpu, later_wall) = self._at[self.first], self._at[self.last]
        rounds = self.last - self.first
        each_ms = (later_cpu - cpu) / rounds * 1000
        before_s = cpu - self.first * each_ms / 1000
        return {
            "cpu_ms": each_ms,
            "wall_ms": (later_wall - wall) / rounds * 1000,
            "before_cpu_s": max(0.0, before_s),
        }


def cpu_s() -> float:
    """Processor time of this process and its descendants so far, also of those that have ended."""
    children = psutil.Process().children(recursive=True)
    return time.process_time() + sum(map(_cpu_of, children)) + sum(psutil.Process().cpu_times()[2:4])


def _cpu_of(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


Learn = Callable[[Work, Clock], Weights]


def main(learn: Learn, *packages: str, **versions: str) -> None:
    """Let an adapter do the work, and say on one line what it cost and what was learned."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=10, help="the round after which measuring begins")
    parser.add_argument("--last", type=int, default=120, help="the last round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    work, clock = make_work(options.seed, options.last), Clock(options.first, options.last)
    weights = {name: np.asarray(tensor, np.float32) for name, tensor in learn(work, clock).items()}
    loss, accuracy = work.loss_and_accuracy(weights)
    found = {
        **clock.costs(),
        "rounds": options.last,
        "loss": loss,
        "accuracy": accuracy,
        "weights": digest(weights),
        "versions": {**versions, **{name: version(name) for name in packages}},
    }
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def digest(weights: Weights) -> str:
    """Equal for weights that are equal to the last bit."""
    whole = b"".join(np.ascontiguousarray(weights[name], np.float32).tobytes() for name in SHAPES)
    return hashlib.sha256(whole).hexdigest()[:16]
