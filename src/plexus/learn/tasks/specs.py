"""The `[task]` table of a session file: one struct per task, every parameter with its meaning."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Momentum = Annotated[float, Meta(ge=0, lt=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class TaskSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="name"):
    """What every task has. The name of the task is the table's `name`."""

    local_steps: Count = 5
    """Steps of SGD in one local training."""
    batch: Count = 20
    """Examples per step."""


class DigitsSpec(TaskSpec, frozen=True, tag="digits"):
    """scikit-learn's bundled 8 x 8 digits: 1,797 images, nothing to download."""

    partition: Literal["iid", "dirichlet", "shards"] = "iid"
    alpha: Positive = 0.3
    """Of the Dirichlet partition: the smaller, the more the nodes' classes differ."""
    shards_per_node: Count = 2
    """Of the shards partition: roughly the number of classes a node has."""
    test_share: Share = 0.2
    hidden: Count = 64
    """Width of the one hidden layer."""
    learning_rate: Positive = 0.3
    momentum: Momentum = 0.0
    weight_decay: NotNegative = 0.0
