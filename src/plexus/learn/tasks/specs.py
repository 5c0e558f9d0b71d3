"""The `[task]` table of a session file: one struct per task, every parameter with its meaning."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Momentum = Annotated[float, Meta(ge=0, lt=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


LATER = frozenset({
    "initial", "optimiser", "nesterov", "clip_norm", "schedule", "local_epochs", "proximal", "on",
    "own_share", "wire",
})  # fmt: skip
"""Keys that earlier versions did not have: at their defaults they are not written, so that digests stay."""


class ScheduleSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A factor on the learning rate, by the round: from 0 up, then down to `floor`."""

    rounds: Count
    """When it has come down."""
    kind: Literal["cosine", "linear"] = "cosine"
    """How it comes down."""
    warmup: Annotated[int, Meta(ge=0)] = 0
    """Rounds in which it goes up, in equal steps."""
    floor: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """What it comes down to."""

    def __call__(self, round: int) -> float:
        if round <= self.warmup:
            return round / (self.warmup + 1)
        passed = min(1.0, (round - self.warmup) / max(1, self.rounds - self.warmup))
        down = (1 + math.cos(math.pi * passed)) / 2 if self.kind == "cosine" else 1 - passed
        return self.floor + (1 - self.floor) * down


class TrainingSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="name"):
    """What decides how long a device trains. The name of the task is the table's `name`."""

    local_steps: Count = 5
    """Steps of SGD in one local training; with `batch`, they decide how long a device trains."""
    batch: Count = 20
    """Examples per step."""

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)


class TaskSpec(TrainingSpec, frozen=True, kw_only=True):
    """What every task has in which something is learned."""

    metric: ClassVar[str] = "accuracy"
    """What models are measured by, for whoever has no torch at hand."""
    learning_rate: Positive
    """Step size of SGD."""
    momentum: Momentum = 0.0
    """Starts anew with each local training."""
    weight_decay: NotNegative = 0.0
    """The L2 penalty on weights; of AdamW, decoupled."""
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    """How weights follow gradients, with torch's meaning."""
    nesterov: bool = False
    """Of SGD with momentum."""
    clip_norm: Positive | None = None
    """Gradients of a larger norm, over all weights together, are scaled down to this."""
    schedule: ScheduleSpec | None = None
    """A factor on the learning rate over the rounds, as `{rounds = 1000, kind = "cosine", warmup = 10}`; a
    `floor` is where it ends."""
    local_epochs: Count | None = None
    """In place of `local_steps`: so many steps that a node sees each of its examples this often."""
    proximal: NotNegative = 0.0
    """FedProx: how strongly a local training is pulled back to the model that it began with."""
    initial: str | None = None
    """The file of a model to start from, as runs leave and `plexus export` writes them."""
    reuse: bool = False
    """Where there are more nodes than the data is enough for, several have the same examples: those of a
    user, or at least a batch. The result says how many sets of examples there are."""


class PartitionedSpec(TaskSpec, frozen=True):
    """What tasks have whose examples belong to nobody in particular."""

    partition: Literal["iid", "dirichlet", "shards", "by-speed"] = "iid"
    """How the training set is divided among nodes: at random, with classes in Dirichlet shares, with
    a few classes a node, or so that the slower half of the devices owns the upper half of the classes and
    the faster half the lower (simulated experiments only)."""
    alpha: Positive = 0.3
    """Of the Dirichlet partition: the smaller, the more the nodes' classes differ."""
    shards_per_node: Count = 2
    """Of the shards partition: roughly the number of classes a node has."""


class DigitsSpec(PartitionedSpec, frozen=True, tag="digits"):
    """Handwritten digits of 8 x 8: 1,797 images that come with Plexus, nothing to download."""

    learning_rate: Positive = 0.3
    test_share: Share = 0.2
    """The share of all examples that is held back for evaluation."""
    hidden: Count = 64
    """Width of the one hidden layer."""


class WritersSpec(TaskSpec, frozen=True, tag="digits-by-writer"):
    """MNIST's digits, one writer a node, tested on other writers; the FEMNIST network."""

    learning_rate: Positive = 0.004
    data: str | None = None
    """Folder of mnist_by_writer.npz or of QMNIST's IDX files."""
    test_examples: Count | None = None
    """Evaluate on so many of the 10,000 test images, drawn by seed, instead of all."""
    hidden: Count | None = None
    """Instead of FEMNIST's network one hidden layer of this width, which learns quickly on a CPU."""


class Cifar10Spec(PartitionedSpec, frozen=True, tag="cifar10"):
    """CIFAR-10 and GN-LeNet: the paper's IID task."""

    learning_rate: Positive = 0.002
    momentum: Momentum = 0.9
    """Of SGD; starts anew with each local training."""
    augment: bool = True
    """Random crop (4 pixels), mirror image and a 16-pixel cutout."""
    data: str | None = None
    """Folder of the official binary batches."""


class CelebaSpec(TaskSpec, frozen=True, tag="celeba"):
    """CelebA of LEAF, one celebrity a node: smiling or not."""

    learning_rate: Positive = 0.001
    data: str | None = None
    """Folder with LEAF's train/ and test/ and the photographs in img_align_celeba/."""


class FemnistSpec(TaskSpec, frozen=True, tag="femnist"):
    """FEMNIST of LEAF, one writer a node: 62 characters."""

    learning_rate: Positive = 0.004
    data: str | None = None
    """Folder with LEAF's train/ and test/."""


class MovielensSpec(TaskSpec, frozen=True, tag="movielens"):
    """MovieLens' ratings, one user a node, by the paper's matrix factorisation: no biases."""

    metric: ClassVar[str] = "mse"
    learning_rate: Positive = 0.2
    dimension: Count = 20
    """Factors per user and per movie."""
    spread: Positive = 0.05
    """Factors start uniformly within plus and minus this."""
    test_share: Share = 0.3
    """Of each user's ratings."""
    data: str | None = None
    """Folder of ratings.csv."""


class BiasedMovielensSpec(MovielensSpec, frozen=True, tag="movielens-biased"):
    """MovieLens with a global mean and a bias per user and per movie: a far better predictor."""

    weight_decay: NotNegative = 1e-4


class UntrainedSpec(TrainingSpec, frozen=True, tag="untrained"):
    """Models of a given size that nobody computes: only time and traffic are simulated."""

    def steps(self, node: int) -> int:
        return self.local_steps

    model_bytes: Count = 346_000
    """Size of a model on the network; 346 kB is the paper's network for CIFAR-10."""


TASKS: dict[str, type[Struct]] = {
    str(spec.__struct_config__.tag): spec
    for spec in (
        DigitsSpec, WritersSpec, Cifar10Spec, CelebaSpec, FemnistSpec, MovielensSpec, BiasedMovielensSpec,
        UntrainedSpec,
    )
}  # fmt: skip
"""The parameters of each task, by the `name` in [task]."""
