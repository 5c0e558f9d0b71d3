"""A learning task is one object: the data of every node, the model, the loss, the metric, how a node trains.

Nothing here knows how trainings are carried out (see `engines`) or which of them are needed
(see `graph`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from plexus.errors import PlexusError, blaming
from plexus.learn.optimiser import Optimiser, optimiser_of
from plexus.learn.tasks.specs import TaskSpec
from plexus.rng import array_stream, stream_seed

Loss = Callable[[Any, Any], Tensor]
"""(outputs, targets) -> the mean over the batch."""


Inputs = Any
"""A tensor with a row per example, a tuple or dictionary of such, or (to be collated) a list of anything."""
Batch = tuple[Inputs, Any]
"""Inputs and targets, ready for the model."""
Collate = Callable[[list[tuple[Any, Any]]], Batch]
"""A list of (input, target) pairs, of different lengths perhaps, as one batch."""


@dataclass(frozen=True)
class Examples:
    """A set of examples: inputs and targets with one row per example."""

    inputs: Inputs
    targets: Any
    """A tensor; a list, if it is collated."""
    ids: NDArray[np.int64]
    """Where each example stands in its source: proves that no test example is trained on."""

    def __post_init__(self) -> None:
        own = leaves(self.inputs)
        for each in () if isinstance(self.inputs, list) else (*own, self.targets):
            if not isinstance(each, Tensor):
                kind = f"{type(each).__module__}.{type(each).__name__}"
                raise PlexusError(f"a data set has a {kind}: tensors are needed (torch.as_tensor)")
        targets, ids = len(self.targets), len(self.ids)
        for each in own:
            if not len(each) == targets == ids:
                found = f"a data set has {len(each)} inputs, {targets} targets and {ids} ids"
                raise PlexusError(f"{found}: one of each per example is needed")

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> Examples:
        if isinstance(self.inputs, list):
            return self  # collated batches go there
        return Examples(each_leaf(lambda t: t.to(device), self.inputs), self.targets.to(device), self.ids)

    def rows(self, rows: NDArray[np.int64]) -> Examples:
        if isinstance(self.inputs, list):
            inputs, targets = ([own[row] for row in rows] for own in (self.inputs, self.targets))
            return Examples(inputs, targets, self.ids[rows])
        at = torch.from_numpy(rows).to(self.targets.device)
        inputs, targets = each_leaf(lambda t: t.index_select(0, at), (self.inputs, self.targets))
        return Examples(inputs, targets, self.ids[rows])


def joined(sets: Sequence[Examples]) -> Examples:
    """One set after the other."""
    ids = np.concatenate([each.ids for each in sets])
    if isinstance(sets[0].inputs, list):
        inputs, targets = zip(*((each.inputs, each.targets) for each in sets), strict=True)
        return Examples(list(chain(*inputs)), list(chain(*targets)), ids)
    inputs = tree_map(lambda *parts: torch.cat(parts), *(each.inputs for each in sets))
    return Examples(inputs, torch.cat([each.targets for each in sets]), ids)


def each_leaf(change: Callable[[Any], Any], inputs: Inputs) -> Inputs:
    """Inputs with every tensor in them changed."""
    return inputs if isinstance(inputs, list) else tree_map(change, inputs)


def taken(inputs: Inputs, at: Any) -> Inputs:
    """The part of every tensor of inputs, or of a list to be collated, at an index or a slice."""
    return inputs[at] if isinstance(inputs, list) else tree_map(lambda tensor: tensor[at], inputs)


def leaves(inputs: Inputs) -> list[Any]:
    """The tensors of inputs; of a list to be collated, itself."""
    return [inputs] if isinstance(inputs, list) else tree_leaves(inputs)


def called(module: Callable[..., Any], inputs: Inputs) -> Any:
    """What `module` says: a tuple is passed on as arguments, a dictionary by name."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


@dataclass(frozen=True)
class Measure:
    """What the task is judged by: a mean over the test set, and figures derived from that mean."""

    name: str
    per_example: Callable[[Any, Any], Tensor]
    """(outputs, targets) -> one number per example."""
    higher_is_better: bool
    derived: Mapping[str, Callable[[float], float]] = field(default_factory=dict)


class Augmentation(Protocol):
    """A random change of inputs, drawn apart from being applied so that all engines do the same."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """The random numbers for `count` examples, one row each."""

    def apply(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """`inputs` (prepared) changed as `drawn`, both with one row per example."""


@dataclass(frozen=True)
class Draw:
    """The randomness of one local training, which depends on seed, node and round alone."""

    examples: NDArray[np.int64]
    """Rows of the training set, batch after batch: steps x batch of them."""
    augmentation: NDArray[np.int64] | None
    torch_seed: int
    """For models that draw numbers themselves (dropout)."""


@dataclass(frozen=True)
class Context:
    """What a training loop of one's own is told. Equal contexts must lead to equal weights: whatever is drawn
    comes from `generator` or `rng`. torch's own generator is seeded too, for dropout and its like."""

    node: int
    round: int
    """Counted from 1."""
    loss: Loss
    batch: int
    generator: torch.Generator
    rng: np.random.Generator
    prepare: Callable[[Any], Inputs] | None = None
    collate: Collate | None = None

    def batches(self, examples: Examples, epochs: int = 1) -> Iterator[Batch]:
        """Inputs, ready for the model, and targets: all examples, newly shuffled in each epoch."""
        for _ in range(epochs):
            order = torch.randperm(len(examples), generator=self.generator)
            for rows in torch.split(order, self.batch):
                yield batch_of(examples.rows(rows.numpy()), self.prepare, self.collate)


def batch_of(examples: Examples, prepare: Callable[[Any], Inputs] | None, collate: Collate | None) -> Batch:
    """Examples as the model takes them."""
    if collate is not None:
        return collate(list(zip(examples.inputs, examples.targets, strict=True)))
    return (examples.inputs if prepare is None else prepare(examples.inputs)), examples.targets


Loop = Callable[[nn.Module, Examples, Context], None]
"""Trains the module in place on the examples of one node."""


@dataclass(frozen=True)
class Task:
    """All there is to know about what is learned. Functions are picklable (at module level)."""

    name: str
    seed: int
    train: Examples
    parts: tuple[NDArray[np.int64], ...]
    """Per node, its rows of `train`."""
    test: Examples
    build_model: Callable[[], nn.Module]
    loss: Loss
    measure: Measure
    optimiser: Optimiser | None = None
    """How weights follow gradients: `Sgd`, `Adam`, `AdamW`. None only with a `loop`."""
    local_steps: int = 5
    """Steps in one local training; where `local_epochs` is given, that decides."""
    batch: int = 20
    local_epochs: int | None = None
    """So many steps that a node sees each of its examples this often."""
    proximal: float = 0.0
    """FedProx: how strongly a local training is pulled back to the model that it began with."""
    loop: Loop | None = None
    """A training loop of one's own, in place of all of the above."""
    prepare: Callable[[Any], Inputs] | None = None
    """Turns stored inputs (say bytes) into what the model takes."""
    collate: Collate | None = None
    """Makes a batch of examples that are lists of things of different lengths."""
    measures: tuple[Measure, ...] = ()
    """What else is measured, beside `measure`, which decides."""
    held: tuple[NDArray[np.int64], ...] = ()
    """Per node, rows of `train` that it keeps to measure models by; in none of the `parts`."""
    augment: Augmentation | None = None
    shared: tuple[str, ...] | None = None
    """Patterns of the names of tensors that are averaged and sent. None: what is trainable, and buffers."""
    local: tuple[str, ...] = ()
    """Patterns of those that stay with a node: a head of its own, say."""
    average_only: bool = False
    """Whether a single node's model means nothing, so that only averages are evaluated (MovieLens)."""
    classes: tuple[str, ...] = ()
    """What class 0, 1, … is called, for whoever uses the model."""
    schema: Struct | None = None
    """Of the table that is learned from (see `tabular`)."""
    notes: tuple[str, ...] = ()
    """What somebody should know about a node's own data: what of it is left out or filled in."""
    initial: Path | None = None
    """The file of a model to start from, instead of the weights that it is built with."""

    def __post_init__(self) -> None:
        for name in ("local_steps", "batch", "local_epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlexusError(f"task {self.name}: {name} is {value}: at least 1 is needed")
        if not isinstance(self.optimiser, Optimiser | None):
            wanted = "plexus.Sgd(…), Adam(…) or AdamW(…) is needed"
            raise PlexusError(f"task {self.name}: optimiser is {self.optimiser!r}: {wanted}")
        for each in (self.measure, *self.measures):
            if not isinstance(each, Measure):
                raise PlexusError(f"task {self.name}: a measure is {each!r}: a plexus.Measure is needed")
        if (self.optimiser is None) == (self.loop is None):
            raise PlexusError(f"task {self.name}: either an optimiser or a loop of one's own is needed")
        if not 0 <= self.proximal < math.inf:
            raise PlexusError(f"task {self.name}: proximal is {self.proximal}: it must not be negative")
        if not self.parts:
            raise PlexusError(f"task {self.name}: no node has data: at least one node is needed")
        for node, part in enumerate(self.parts):
            if len(part) == 0:
                raise PlexusError(f"task {self.name}: the partition of node {node} is empty")
        if isinstance(self.train.inputs, list) != (self.collate is not None):
            raise PlexusError(f"task {self.name}: examples in lists and a collate function need each other")
        if len(self.test) == 0:
            raise PlexusError(f"task {self.name}: the test set is empty")
        if np.isin(self.test.ids, self.train.ids).any():
            raise PlexusError(f"task {self.name}: examples of the test set are also in the training set")

    @property
    def nodes(self) -> int:
        return len(self.parts)

    def samples(self, node: int) -> int:
        return len(self.parts[node])

    def steps(self, node: int) -> int:
        if self.local_epochs is None:
            return self.local_steps
        return -(-self.local_epochs * len(self.parts[node]) // self.batch)

    def draw(self, node: int, round: int) -> Draw:
        """What `node` trains on in `round`: epoch after epoch of its examples, each newly shuffled.

        A batch may reach into the next epoch, so every batch is full whatever the node has.
        """
        rng = array_stream(self.seed, "learn", "train", node, round)
        part = self.parts[node]
        needed = self.steps(node) * self.batch
        epochs = [rng.permutation(part) for _ in range(-(-needed // len(part)))]
        examples = (epochs[0] if len(epochs) == 1 else np.concatenate(epochs))[:needed]
        drawn = None if self.augment is None else self.augment.draw(rng, needed)
        return Draw(examples, drawn, int(rng.integers(2**63)))

    def context(self, node: int, round: int) -> Context:
        """What the task's own loop is told when `node` trains in `round`."""
        rng = array_stream(self.seed, "learn", "train", node, round)
        generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
        return Context(node, round, self.loss, self.batch, generator, rng, self.prepare, self.collate)

    def initial_model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(stream_seed(self.seed, "learn", "initial"))
            with blaming(f"task {self.name}: building the model"):
                module: object = self.build_model()
        if not isinstance(module, nn.Module):
            wrong = f"build_model makes a {type(module).__name__}, not a torch module"
            raise PlexusError(f"task {self.name}: {wrong}")
        if any(map(nn.parameter.is_lazy, module.parameters())):
            raise PlexusError(f"task {self.name}: the model has lazy layers: say how many inputs they have")
        if self.initial is not None:
            from plexus.learn.saved import fill, read_model  # which is about tasks

            fill(module, read_model(self.initial)[0], str(self.initial))
        return module


def task_of(spec: TaskSpec, seed: int, *what: Any, **more: Any) -> Task:
    """A task with the training that a `[task]` table describes; `what` are train to measure, in order."""
    said = {key: getattr(spec, key) for key in ("name", "local_steps", "batch", "local_epochs", "proximal")}
    said |= zip(("train", "parts", "test", "build_model", "loss", "measure"), what, strict=True)
    return Task(seed=seed, optimiser=optimiser_of(spec), **said, **more)


def hold_out(task: Task, share: float) -> Task:
    """The task with a share of each node's examples held back, to measure by; a single one is not."""
    kept, held, first = [], [], dict[bytes, int]()
    for node, part in enumerate(task.parts):
        # Who have the same examples (`reuse`) hold back the same, or one would train on what another holds.
        drawn_by = first.setdefault(np.asarray(part).tobytes(), node)
        rows = array_stream(task.seed, "learn", "own", drawn_by).permutation(part)
        count = min(len(part) - 1, max(1, round(share * len(part))))
        kept.append(np.sort(rows[count:]))
        held.append(np.sort(rows[:count]))
    if not any(map(len, held)):
        raise PlexusError(f"task {task.name}: no node has two examples, to hold one back and measure by it")
    return replace(task, parts=tuple(kept), held=tuple(held))


def is_top1(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the highest output is the target class, else 0."""
    return (outputs.argmax(dim=-1) == targets).float()


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


TOP1 = Measure("accuracy", is_top1, higher_is_better=True)
CLASSES = (functional.cross_entropy, TOP1)
"""The loss and the measure of telling classes apart."""
MSE = Measure("mse", squared_error, higher_is_better=False, derived={"rmse": math.sqrt})
