"""How a node's weights follow the gradients: SGD, Adam and AdamW as torch has them, for one client or many.

All of it is arithmetic on lists of tensors; weights and memory change in place, gradients never, as autograd
gives several parameters one and the same if it can. It does not care whether a tensor belongs to one client
or has a first dimension of many; so every engine does the same. State starts anew with each training.
That one client's weights are those of `torch.optim`, is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from msgspec.structs import fields
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn.layout import check_patterns
from plexus.learn.tasks.specs import TaskSpec

Schedule = Callable[[int], float]
"""From the round, counted from 1, to a factor on the learning rate."""
Scale = float | Tensor
"""A factor on the learning rate: of one client, or of each of many."""
Tensors = list[Tensor]
Rates = list[float]
Begun = tuple[Tensors, Tensors]
"""Of a training: what the optimiser remembers; and where it began, if that matters."""


@dataclass(frozen=True)
class Group:
    """Parameters that are treated in their own way. Of several groups that match a name the first counts."""

    pattern: str
    """Of names, as in a shell: `head.*`."""
    learning_rate: float | None = None
    weight_decay: float | None = None


@dataclass(frozen=True)
class Optimiser:
    """What all of them have."""

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    """Gradients whose norm, over all parameters together, is above this are scaled down to it."""
    schedule: Schedule | None = None
    """Of the learning rate, over the rounds of a session."""
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise PlexusError(f"learning_rate is {self.learning_rate}: it must be above 0")
        if not 0 <= self.momentum < 1:
            raise PlexusError(f"momentum is {self.momentum}: it must be from 0 to below 1")
        if not self.weight_decay >= 0:
            raise PlexusError(f"weight_decay is {self.weight_decay}: it must not be negative")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise PlexusError(f"clip_norm is {self.clip_norm}: it must be above 0")

    def scale(self, round: int) -> float:
        return 1.0 if self.schedule is None else float(self.schedule(round))

    def begin(self, parameters: Sequence[Tensor]) -> Tensors:
        """What it remembers from step to step, before the first."""
        raise NotImplementedError

    def move(self, weights: Tensors, gradients: Tensors, memory: Tensors, rates: Rates, scale: Scale) -> None:
        """Change weights and memory; `rates[i]` times `scale` is the learning rate of tensor i."""
        raise NotImplementedError

    decoupled = False
    """Whether weights decay by themselves, rather than by a term of the gradient."""


@dataclass(frozen=True)
class Sgd(Optimiser):
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise PlexusError("nesterov needs a momentum above 0")

    @property
    def is_plain(self) -> bool:
        """Whether a step touches only what has a gradient, so that gradients may be sparse."""
        return not (self.momentum or self.weight_decay or self.clip_norm or self.groups)

    def begin(self, parameters: Sequence[Tensor]) -> Tensors:
        return [torch.zeros_like(each) for each in parameters] if self.momentum else []

    def move(self, weights: Tensors, gradients: Tensors, memory: Tensors, rates: Rates, scale: Scale) -> None:
        if self.momentum:
            torch._foreach_mul_(memory, self.momentum)
            torch._foreach_add_(memory, gradients)
            if self.nesterov:
                gradients = list(torch._foreach_add(gradients, memory, alpha=self.momentum))
            else:
                gradients = memory
        if isinstance(scale, Tensor):
            gradients, scale = [each * _wide(scale, each) for each in gradients], 1.0
        _add(torch._foreach_add_, weights, gradients, [-rate * scale for rate in rates])


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam; weight decay is a term of the gradient. `momentum` is the first of its betas."""

    momentum: float = 0.9
    second: float = 0.999
    """The second of its betas."""
    eps: float = 1e-8

    def begin(self, parameters: Sequence[Tensor]) -> Tensors:
        # Counts steps in a tensor: what many clients do is recorded once, which would fix a mere number.
        steps = torch.zeros((), dtype=torch.float64, device=parameters[0].device)
        return [steps, *(torch.zeros_like(each) for _ in range(2) for each in parameters)]

    def move(self, weights: Tensors, gradients: Tensors, memory: Tensors, rates: Rates, scale: Scale) -> None:
        steps, means, squares = memory[0], memory[1 : len(gradients) + 1], memory[len(gradients) + 1 :]
        steps += 1
        torch._foreach_lerp_(means, gradients, 1 - self.momentum)
        torch._foreach_mul_(squares, self.second)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - self.second)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - self.second**steps).sqrt())
        torch._foreach_add_(roots, self.eps)
        # In torch's order: where a gradient is next to nothing, its last bit decides which way a weight goes.
        begun = 1 - self.momentum**steps
        moves = [mean * _wide(-(rate * scale) / begun, mean) for mean, rate in zip(means, rates, strict=True)]
        torch._foreach_div_(moves, roots)
        torch._foreach_add_(weights, moves)


@dataclass(frozen=True)
class AdamW(Adam):
    weight_decay: float = 0.01
    decoupled = True


class Descent:
    """The steps of one task's trainings: its optimiser, and FedProx's pull back to where a training began."""

    def __init__(self, optimiser: Optimiser, proximal: float, names: Sequence[str]) -> None:
        self.optimiser = optimiser
        self._proximal = proximal
        check_patterns("groups", tuple(group.pattern for group in optimiser.groups), names)
        patterns = *optimiser.groups, Group("*")
        groups = [next(g for g in patterns if fnmatchcase(name, g.pattern)) for name in names]
        rates, decays = [g.learning_rate for g in groups], [g.weight_decay for g in groups]
        self._rates = [optimiser.learning_rate if rate is None else rate for rate in rates]
        self._decays = [optimiser.weight_decay if decay is None else decay for decay in decays]

    def begin(self, parameters: Sequence[Tensor]) -> Begun:
        anchors = [each.detach().clone() for each in parameters] if self._proximal else []
        return self.optimiser.begin(parameters), anchors

    @torch.no_grad()
    def step(
        self, parameters: Tensors, gradients: Tensors, begun: Begun, scale: Scale = 1.0, stacked: bool = False
    ) -> None:
        """Change `parameters` and what is remembered. With `stacked`, the first dimension of all tensors is
        the client, and `scale` may have one factor for each."""
        optimiser, (memory, anchors) = self.optimiser, begun
        if self._proximal:
            pulls = torch._foreach_sub(parameters, anchors)
            gradients = list(torch._foreach_add(gradients, pulls, alpha=self._proximal))
        if optimiser.clip_norm is not None:
            gradients = _clipped(gradients, optimiser.clip_norm, stacked)
        if any(self._decays) and not optimiser.decoupled:
            gradients = list(_add(torch._foreach_add, gradients, parameters, self._decays))
        elif any(self._decays):
            for parameter, rate, decay in zip(parameters, self._rates, self._decays, strict=True):
                kept = 1 - rate * scale * decay
                parameter *= _wide(kept, parameter) if isinstance(kept, Tensor) else kept
        optimiser.move(parameters, gradients, memory, self._rates, scale)


def optimiser_of(spec: TaskSpec) -> Optimiser:
    """What the keys of a `[task]` table say."""
    shared = spec.learning_rate, spec.momentum, spec.weight_decay, spec.clip_norm, spec.schedule
    if spec.optimiser == "sgd":
        return Sgd(*shared, nesterov=spec.nesterov)
    # What a task has where its table says nothing is not for others: CIFAR-10's, of the paper.
    usual = next(field.default for field in fields(spec) if field.name == "momentum")
    if spec.nesterov or spec.momentum not in (0, usual):
        key = "nesterov" if spec.nesterov else "momentum"
        raise PlexusError(f"task.{key} is one of SGD's: {spec.optimiser} has none")
    kind = AdamW if spec.optimiser == "adamw" else Adam
    return kind(spec.learning_rate, 0.9, *shared[2:])


def _add(add: Callable[..., Any], these: Tensors, others: Tensors, factors: Rates) -> Any:
    """`these[i] + factors[i] * others[i]`, by a function of torch that adds lists."""
    if len(set(factors)) == 1:
        return add(these, others, alpha=factors[0])
    return add(these, torch._foreach_mul(others, factors))


def _clipped(gradients: Tensors, most: float, stacked: bool) -> Tensors:
    """As `torch.nn.utils.clip_grad_norm_`; each client's by itself."""
    flat = [each.unsqueeze(-1).flatten(1) if stacked else each.flatten() for each in gradients]
    norms = torch.stack([each.norm(dim=-1) for each in flat])
    factor = (most / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
    return [each * _wide(factor, each) for each in gradients]


def _wide(factor: Tensor, tensor: Tensor) -> Tensor:
    """A factor for each client, or one for all, in a shape that multiplies `tensor`."""
    return factor.reshape(factor.shape + (1,) * (tensor.dim() - factor.dim())).to(tensor.dtype)
