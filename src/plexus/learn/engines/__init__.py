"""Engines carry out trainings: the same weights from all of them, at different speeds.

Here is what the graph asks of an engine, and which one is taken: by name, or chosen for the task and the
machine, with the reason. Importing this does not import torch: the command line needs the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from plexus.checked import not_one_of
from plexus.errors import PlexusError
from plexus.machine import usable_cores
from plexus.runs.result import ChosenEngine

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from plexus.learn.layout import Layout
    from plexus.learn.task import Task
    from plexus.runs.result import Metrics

Precision = Literal["float32", "tf32", "bf16"]
"""Of products on a GPU, where kernels do them; bf16 also of what is between layers."""
ENGINES = ("auto", "inline", "processes", "stacked", "ray", "ray-stacked")
STACKED_PARAMETERS = 50_000
"""Up to here a model without convolutions trains faster stacked on a CPU; measured on two cores:
digits (4,810) 4 to 6 times, MovieLens (206,680) 0.7 times as fast as one after the other."""

EARNED_BACK = 120
"""Setting up a stack takes 0.1 s of a processor, and a training of digits 0.27 ms instead of 1.1: with fewer
trainings it is not worth it."""


@dataclass(frozen=True)
class LocalTraining:
    base: Tensor
    node: int
    round: int
    """How many rounds there were, with this one: what is drawn depends on it, and where a schedule stands."""


class Engine(Protocol):
    """Carries out trainings that do not depend on each other; results in the order of the jobs."""

    device: torch.device
    layout: Layout
    initial: Tensor
    """The weights everybody starts from."""
    frozen: dict[str, Tensor]
    """The tensors that are in no vector of weights."""
    workers_cpu_s: float
    """Processor time of other processes that computed for this one, so far."""

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        """The trained weights of each job."""

    def evaluate(self, vector: Tensor) -> Metrics:
        """A model's metrics on the test set."""

    def evaluate_own(self, vector: Tensor, node: int) -> Metrics:
        """A model's metrics on what a node holds back of its own data."""

    def close(self) -> None:
        """Give back workers and memory. The engine is not used afterwards."""


def create_engine(
    name: str,
    task: Task,
    *,
    workers: int | None = None,
    device: str | None = None,
    address: str | None = None,
    expected: int | None = None,
    precision: Precision = "tf32",
) -> tuple[Engine, ChosenEngine]:
    """The engine called `name`; `auto` chooses. `workers` for processes and ray, `address` for ray,
    `precision` for stacked on a GPU.

    `expected` is about how many trainings there will be, where somebody has an idea.
    """
    import torch

    from plexus.learn.engines.processes import ProcessesEngine
    from plexus.learn.engines.ray import RayEngine
    from plexus.learn.engines.stacked import CannotStackError, StackedEngine, cannot_stack
    from plexus.learn.trainer import InlineEngine

    if name not in ENGINES:
        raise PlexusError(f"engine {not_one_of(name, ENGINES)}")
    if name == "auto":
        chosen = choose(task, workers, device, expected)
    else:
        usual = "cuda" if name == "stacked" and torch.cuda.is_available() else "cpu"
        # What a cluster has, the cluster says.
        on = "cpu" if name.startswith("ray") else device or usual
        chosen = ChosenEngine(name, on, "asked for")
    _check_device(chosen)
    if name.endswith("stacked") and (unfit := cannot_stack(task)) is not None:
        raise CannotStackError(task.name, unfit)
    match chosen.name:
        case "inline":
            return InlineEngine(task, chosen.device), chosen
        case "processes":
            return ProcessesEngine(task, workers), chosen
        case "ray" | "ray-stacked":
            ray = RayEngine(task, workers, address, device, stacked=name == "ray-stacked")
            return ray, ChosenEngine(name, ray.trains_on, chosen.reason)
    return StackedEngine(task, chosen.device, precision=precision), chosen


def choose(
    task: Task, workers: int | None = None, device: str | None = None, expected: int | None = None
) -> ChosenEngine:
    """The engine that is fastest for this task on this machine."""
    import torch
    from torch.nn.modules.conv import _ConvNd

    from plexus.learn.engines.stacked import cannot_stack

    if device != "cpu" and (device is not None or torch.cuda.is_available()):
        if (unfit := cannot_stack(task)) is None:
            return ChosenEngine("stacked", device or "cuda", "a GPU trains all clients of a wave at once")
        return ChosenEngine("inline", device or "cuda", f"a GPU, but the model cannot be stacked: {unfit}")
    module = task.initial_model()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    convolves = any(isinstance(part, _ConvNd) for part in module.modules())
    kind = "a convolution network" if convolves else f"a model of {parameters:,} parameters"
    if not convolves and parameters <= STACKED_PARAMETERS:
        if expected is not None and expected < EARNED_BACK:
            reason = f"no GPU; some {expected:,} trainings of a small model are over before a stack is set up"
            return ChosenEngine("inline", "cpu", reason)
        if (unfit := cannot_stack(task)) is None:
            reason = f"no GPU; a small model ({parameters:,} parameters) is fastest stacked"
            return ChosenEngine("stacked", "cpu", reason)
        kind = f"a model that cannot be stacked ({unfit})"
    cores = workers or usable_cores()
    if cores > 1:
        return ChosenEngine("processes", "cpu", f"no GPU; {kind} trains on {cores} cores in parallel")
    return ChosenEngine("inline", "cpu", f"no GPU; {kind}, and one core only")


def hardware() -> tuple[str, list[str]]:
    """What there is to learn with on this machine: torch's version, and every GPU that it can use."""
    import torch

    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    words = [f"cuda:{at} {gpu.name}, {gpu.total_memory / 1e9:.0f} GB" for at, gpu in enumerate(gpus)]
    return str(torch.__version__), words


def _check_device(chosen: ChosenEngine) -> None:
    import torch

    try:
        kind = torch.device(chosen.device).type
    except RuntimeError:
        raise PlexusError(f"unknown device {chosen.device!r}: cpu, cuda or cuda:N") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise PlexusError(f"device {chosen.device} was asked for, but this machine has no CUDA GPU")
    if kind != "cpu" and chosen.name == "processes":
        raise PlexusError(f"the engine processes computes on the CPU, not on {chosen.device}")
