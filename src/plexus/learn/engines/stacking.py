"""Local training of many clients at once: their weights stacked, one operation for all of them.

The forward pass comes from `stacked_layers` where that knows the network, else from `torch.func.vmap`
of the task's own module. A step is recorded as a plain list of tensor operations (`make_fx`) and
replayed: going through autograd and vmap anew for every step would take longer than a small model's
arithmetic. On a GPU the replay is recorded once more, as a CUDA graph: a local training of all
clients is then a single launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

Tensors = dict[str, Tensor]
"""By name, of all clients."""
State = tuple[Tensors, Tensors, Tensors]
"""Trainable tensors, their momenta, the tensors that SGD leaves alone."""
Step = Callable[[Tensors, Tensors, Tensors, Tensor, Tensor], State]

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
        by_hand: bool,
        compiled: bool = False,
    ) -> None:
        self._task = task
        self._layout = layout
        self._clients = clients
        self._plain = build_step(task, module, by_hand)
        self._compiled = compiled
        self._step: Step | None = None

    def train(self, bases: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Rows of weights after training: row i of `bases` on `inputs[:, i]`, step by step."""
        trainable, fixed = self._unstack(bases, True), self._unstack(bases, False)
        has_momenta = self._task.sgd.momentum > 0
        momenta = {name: torch.zeros_like(t) for name, t in trainable.items()} if has_momenta else {}
        if self._step is None:
            self._step = self._record(trainable, momenta, fixed, inputs[0], targets[0])
        for batch, wanted in zip(inputs, targets, strict=True):
            trainable, momenta, fixed = self._step(trainable, momenta, fixed, batch, wanted)
        tensors = trainable | fixed
        rows = [tensors[entry.name].reshape(self._clients, -1) for entry in self._layout.entries]
        return torch.cat([row.to(self._layout.dtype) for row in rows], dim=1)

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

    def _unstack(self, bases: Tensor, trainable: bool) -> Tensors:
        return {
            entry.name: cast(bases[:, entry.start : entry.stop], entry.dtype)
            .reshape(self._clients, *entry.shape)
            .clone()
            for entry in self._layout.entries
            if entry.trainable is trainable
        }


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


def build_step(task: Task, module: nn.Module, by_hand: bool) -> Step:
    """One step of SGD for all clients. Changes none of its arguments but the fixed tensors."""
    forward = (forward_of(module) if by_hand else None) or _vmapped(module)
    sgd = task.sgd

    def step(trainable: Tensors, momenta: Tensors, fixed: Tensors, inputs: Tensor, targets: Tensor) -> State:
        with torch.enable_grad():
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in trainable.items()}
            loss = _summed_loss(task, forward({**leaves, **fixed}, inputs), targets)
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        gradients = dict(zip(leaves, found, strict=True))
        if sgd.weight_decay:
            gradients = _added(gradients, trainable, sgd.weight_decay)
        if sgd.momentum:
            gradients = momenta = _added(gradients, momenta, sgd.momentum)
        return _added(trainable, gradients, -sgd.learning_rate), momenta, fixed

    return step


def _added(tensors: Tensors, others: Tensors, factor: float) -> Tensors:
    return {name: torch.add(tensor, others[name], alpha=factor) for name, tensor in tensors.items()}


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


def _reason(error: Exception) -> str:
    if "randomness" in str(error):
        return "it draws random numbers (dropout), which differ from client to client"
    return described(error)
