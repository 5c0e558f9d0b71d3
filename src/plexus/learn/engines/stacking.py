"""Local training of many clients at once: their weights stacked, one operation for all of them.

The forward pass comes from `stacked_layers` where that knows the network, else from `torch.func.vmap`
of the task's own module. A step is recorded as a plain list of tensor operations (`make_fx`) and
replayed: going through autograd and vmap anew for every step would take longer than a small model's
arithmetic. On a GPU the replay is recorded once more, as a CUDA graph: a local training of all
clients is then a single launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils._pytree import tree_map

from plexus.errors import PlexusError, described
from plexus.learn.engines.stacked_layers import Forward, forward_of
from plexus.learn.layout import Layout, cast

if TYPE_CHECKING:
    from plexus.learn.task import Task

State = tuple[list[Tensor], list[Tensor], list[Tensor]]
"""Of all clients: trainable tensors, their momenta, the tensors that SGD leaves alone."""
Step = Callable[[list[Tensor], list[Tensor], list[Tensor], Tensor, Tensor], State]

JOINT_LOSSES = (functional.cross_entropy, functional.mse_loss)
"""Means over examples: the mean over all clients' examples, times clients, is the sum of their means."""


class CannotStackError(PlexusError):
    """The model has something that does not work for many clients at once."""

    def __init__(self, task: str, reason: str) -> None:
        super().__init__(
            f"task {task}: the engine stacked cannot run this model, use inline or processes: {reason}"
        )
        self.reason = reason


class Stack:
    """The local training of a fixed number of clients of one task."""

    def __init__(
        self,
        task: Task,
        layout: Layout,
        module: nn.Module,
        clients: int,
        by_hand: bool = True,
        compiled: bool = False,
    ) -> None:
        self._task = task
        self._layout = layout
        self._clients = clients
        self._plain = build_step(task, layout, module, by_hand)
        self._compiled = compiled
        self._step: Step | None = None

    def train(self, bases: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Rows of weights after training: row i of `bases` on `inputs[:, i]`, step by step."""
        trainable, fixed = self._unstack(bases)
        momenta = [torch.zeros_like(t) for t in trainable] if self._task.sgd.momentum else []
        if self._step is None:
            self._step = self._record(trainable, momenta, fixed, inputs[0], targets[0])
        for batch, wanted in zip(inputs, targets, strict=True):
            trainable, momenta, fixed = self._step(trainable, momenta, fixed, batch, wanted)
        return self._restack(trainable, fixed)

    def _record(self, *example: Any) -> Step:
        try:
            # On copies: recording runs the step once, and a module may change its buffers in place.
            step: Step = make_fx(self._plain)(*tree_map(torch.clone, example))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise CannotStackError(self._task.name, _reason(error)) from error
        if self._compiled:
            step = torch.compile(step, fullgraph=True, dynamic=False)
        return step

    def _unstack(self, bases: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        trainable: list[Tensor] = []
        fixed: list[Tensor] = []
        for entry in self._layout.entries:
            piece = cast(bases[:, entry.start : entry.stop], entry.dtype)
            tensor = piece.reshape(self._clients, *entry.shape).clone()
            (trainable if entry.trainable else fixed).append(tensor)
        return trainable, fixed

    def _restack(self, trainable: list[Tensor], fixed: list[Tensor]) -> Tensor:
        queues = {True: iter(trainable), False: iter(fixed)}
        columns = [
            next(queues[entry.trainable]).reshape(self._clients, -1).to(self._layout.dtype)
            for entry in self._layout.entries
        ]
        return torch.cat(columns, dim=1)


class RecordedStack:
    """A stack whose whole training is one CUDA graph: inputs are copied in, the result copied out."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: tuple[Tensor, ...] = ()
        self._result = torch.empty(0)

    def train(self, bases: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """As `Stack.train`."""
        if self._graph is None:
            self._capture(bases, inputs, targets)
        assert self._graph is not None
        for argument, given in zip(self._arguments, (bases, inputs, targets), strict=True):
            argument.copy_(given)
        self._graph.replay()
        return self._result.clone()

    def _capture(self, *arguments: Tensor) -> None:
        self._arguments = tuple(argument.clone() for argument in arguments)
        # Libraries set themselves up on first use, which must not be part of the graph.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._stack.train(*self._arguments)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._result = self._stack.train(*self._arguments)


def build_step(task: Task, layout: Layout, module: nn.Module, by_hand: bool) -> Step:
    """One step of SGD for all clients. Changes none of its arguments but the fixed tensors."""
    names = {
        kind: [entry.name for entry in layout.entries if entry.trainable is kind] for kind in (True, False)
    }
    forward = (forward_of(module) if by_hand else None) or _vmapped(module)
    sgd = task.sgd

    def step(
        trainable: list[Tensor], momenta: list[Tensor], fixed: list[Tensor], inputs: Tensor, targets: Tensor
    ) -> State:
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in trainable]
            tensors = dict(zip(names[True], leaves, strict=True))
            tensors.update(zip(names[False], fixed, strict=True))
            loss = _summed_loss(task, forward(tensors, inputs), targets)
            gradients = list(torch.autograd.grad(loss, leaves, materialize_grads=True))
        if sgd.weight_decay:
            gradients = _each(gradients, trainable, sgd.weight_decay)
        if sgd.momentum:
            momenta = _each(gradients, momenta, sgd.momentum)
            gradients = momenta
        return _each(trainable, gradients, -sgd.learning_rate), momenta, fixed

    return step


def stackable(module: nn.Module) -> nn.Module:
    """The module prepared for stacking, which knows no sparse gradients."""
    for part in module.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.sparse = False
    return module


def _vmapped(module: nn.Module) -> Forward:
    def one(tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        outputs: Tensor = functional_call(module, dict(tensors), (inputs,))
        return outputs

    return vmap(one)


def _summed_loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of all clients' losses; no client's weights touch another's loss."""
    if task.loss in JOINT_LOSSES:
        return task.loss(outputs.flatten(0, 1), targets.flatten(0, 1)) * len(outputs)
    return vmap(task.loss)(outputs, targets).sum()


def _each(tensors: Sequence[Tensor], others: Sequence[Tensor], factor: float) -> list[Tensor]:
    return [torch.add(t, o, alpha=factor) for t, o in zip(tensors, others, strict=True)]


def _reason(error: Exception) -> str:
    if "randomness" in str(error):
        return "it draws random numbers (dropout), which differ from client to client"
    return described(error)
