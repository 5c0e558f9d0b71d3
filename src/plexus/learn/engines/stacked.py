"""Many clients at once, with stacked weights, one operation for all: for a GPU, and small models on a CPU.

Within rounding the weights are those of `inline`: the same examples and steps, with sums in another
order. The tests hold one local training to a difference of 1e-4 of the largest weight.

Perceptrons are gone through by hand, on a GPU networks whose layers `kernels` knows; else it is done by
`torch.func.vmap` of the task's own module. Convolutions on a CPU are faster so than any of ours were. A small
step is recorded as a plain list of operations (`tape`) and replayed: going through autograd and vmap anew for
every step would take longer than a small model's arithmetic. On a GPU the whole training is recorded, as a
CUDA graph: a local training of all clients is then a single launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.utils._pytree import tree_leaves, tree_map

from plexus.errors import PlexusError, blaming, described
from plexus.learn.engines import LocalTraining, Precision
from plexus.learn.engines.tape import Tape
from plexus.learn.layout import Layout, TensorSlice, cast
from plexus.learn.optimiser import Begun, Descent
from plexus.learn.task import Batch, Inputs, Task, called, taken
from plexus.learn.trainer import InlineEngine, one_thread

MOST_CLIENTS = {"cpu": 64, "cuda": 128}
"""Clients in one stack: enough to fill the machine; memory grows with it."""
Tensors = dict[str, Tensor]
"""By name, of all clients."""
State = tuple[Tensors, Begun, Tensors, list[Tensor]]
"""Trainable tensors, what is remembered of their training, the tensors that it leaves alone; where there is a
schedule, the scale of the learning rate."""
Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""(stacked tensors by name, inputs: clients x batch x …) -> outputs: clients x batch x …"""
LARGEST_TAPE = 64 << 20
"""Bytes of results that a recorded step may keep in memory. What has more spends its time in arithmetic."""

JOINT_LOSSES = (functional.cross_entropy, functional.mse_loss)
"""Means over examples: the mean over all clients' examples, times clients, is the sum of their means."""
IGNORED = -100
"""A target that cross entropy leaves out of the mean: of one client's perhaps more than of another's."""


class StackedEngine(InlineEngine):
    """Trains all clients of a wave together; evaluates one model after the other."""

    def __init__(self, task: Task, device: str = "cpu", precision: Precision = "tf32") -> None:
        super().__init__(task, device)
        self._task = task
        self._most = MOST_CLIENTS.get(self.device.type, 64)
        module = task.initial_model().to(self.device).train()
        for part in module.modules():
            if isinstance(part, nn.Embedding | nn.EmbeddingBag):
                part.sparse = False  # stacking knows no sparse gradients
        self._passes = passes_of(task, module, self.device, self.frozen, precision)
        self._stacks: dict[tuple[int, int], Stack | RecordedStack] = {}
        if self.device.type == "cuda":
            # As torch does by default for convolutions: half the time, and rounding far below the
            # differences between clients.
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        # By number of steps, where that differs: those of one stack take them together.
        order = sorted(range(len(jobs)), key=lambda at: self._task.steps(jobs[at].node))
        trained = dict(zip(order, self._in_stacks([jobs[at] for at in order]), strict=True))
        return [trained[at] for at in range(len(jobs))]

    def _in_stacks(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        trained: list[Tensor] = []
        with one_thread(), blaming(f"task {self._task.name}: training"):
            while len(trained) < len(jobs):
                try:
                    rest = jobs[len(trained) :][: self._most]
                    # Those at the beginning that have the same number of steps.
                    _, alike = next(groupby(rest, key=lambda job: self._task.steps(job.node)))
                    trained += self._train_stack(list(alike))
                except torch.OutOfMemoryError:
                    self._shrink()
        return trained

    def _shrink(self) -> None:
        """The stack did not fit into the GPU's memory: smaller ones from now on."""
        if self._most == 1:
            raise PlexusError(f"task {self._task.name}: not even one client fits into the GPU's memory")
        self._most //= 2
        self._stacks.clear()
        torch.cuda.empty_cache()

    def _train_stack(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        clients = min(stack_size(len(jobs)), self._most)
        draws = [self._task.draw(job.node, job.round) for job in jobs]
        # Idle places repeat the first client, and are thrown away.
        idle = clients - len(jobs)
        inputs, targets = self.trainer.data.stacked(draws + draws[:1] * idle)
        bases = torch.stack([job.base for job in jobs] + [jobs[0].base] * idle)
        descent = self.trainer.descent
        assert descent is not None, "a loop of one's own is not stacked"
        factors = [descent.optimiser.scale(job.round) for job in jobs]
        scale = torch.tensor(factors + factors[:1] * idle, dtype=torch.float64, device=self.device)
        rows = self._stack(descent, clients, len(targets)).train(bases, inputs, targets, scale)
        # Each its own memory: one model that is kept must not keep its whole stack.
        return [row.clone() for row in rows[: len(jobs)]]

    def _stack(self, descent: Descent, clients: int, steps: int) -> Stack | RecordedStack:
        on_gpu = self.device.type == "cuda"
        # A recording is of so many steps; else any number of them will do.
        kind = (clients, steps if on_gpu else 0)
        if kind not in self._stacks:
            stack = Stack(self._task, descent, self.layout, self._passes, clients)
            self._stacks[kind] = RecordedStack(stack) if on_gpu else stack
        return self._stacks[kind]

    def close(self) -> None:
        self._stacks.clear()


def stack_size(jobs: int) -> int:
    """The size of the stack for so many jobs: few sizes, as each is compiled, and few idle places."""
    multiple = next((each for upto, each in ((1, 1), (16, 2), (64, 4), (128, 8)) if jobs <= upto), 16)
    return -(-jobs // multiple) * multiple


def cannot_stack(task: Task) -> str | None:
    """Why the task's model cannot be trained stacked; None if it can.

    Found by training two clients for a step or two, both ways. A model that reaches its parameters other than
    as attributes of their modules (in a list, in a closure) does not fail when stacked: it learns nothing.
    """
    if task.loop is not None:
        return "the task has a training loop of its own"
    if task.collate is not None:
        return "its batches are collated from examples of different lengths"
    task = replace(task, local_steps=min(2, task.local_steps), local_epochs=None)
    inline, stacked = InlineEngine(task), StackedEngine(task)
    jobs = [LocalTraining(inline.initial, 0, 1), LocalTraining(2 * inline.initial, task.nodes - 1, 1)]
    wanted = inline.train(jobs)
    try:
        found = stacked.train(jobs)
    except CannotStackError as error:
        return error.reason
    for entry in inline.layout.entries:
        if not all(map(partial(_agree, entry), jobs, wanted, found)):
            alone = f"its {entry.name} would not change as it does when one client trains alone"
            return f"{alone}; are parameters reached other than as attributes of their module?"
    return None


def _agree(entry: TensorSlice, job: LocalTraining, wanted: Tensor, found: Tensor) -> bool:
    """Whether a tensor became the same, up to rounding of its change, of sums that cancel, of its values."""
    if not torch.isfinite(wanted).all():
        return True  # training diverges, with any engine
    change = (wanted - job.base).abs()
    part = slice(entry.start, entry.stop)
    tolerated = 0.01 * change[part] + 1e-3 * change.max() + 1e-6 * job.base[part].abs()
    return entry.start == entry.stop or bool((found - wanted)[part].abs().max() <= tolerated.max())


def is_joint(task: Task) -> bool:
    """Whether a mean over the examples of all clients will do."""
    return task.loss in JOINT_LOSSES and not bool((task.train.targets == IGNORED).any())


class CannotStackError(PlexusError):
    """The model has something that does not work for many clients at once."""

    def __init__(self, task: str, reason: str) -> None:
        cannot = f"task {task}: the engine stacked cannot run this model, use inline or processes"
        super().__init__(f"{cannot}: {reason}")
        self.reason = reason


class Stack:
    def __init__(self, task: Task, descent: Descent, layout: Layout, passes: Passes, clients: int) -> None:
        self._task = task
        self._descent = descent
        self._layout = layout
        self._is_joint = is_joint(task)
        self._passes = passes
        self._frozen = passes.arrange({n: t.expand(clients, *t.shape) for n, t in passes.frozen.items()})
        self._take_steps: Callable[[State, Batch], State] | None = None
        """Changes the state by all batches, one after the other."""

    def train(self, bases: Tensor, inputs: Inputs, targets: Tensor, scale: Tensor) -> Tensor:
        """Rows of weights after training: row i of `bases` on `inputs[:, i]`, step by step.

        `scale[i]` is the factor on the learning rate of row i, for tasks that have a schedule.
        """
        trainable, fixed = (self._passes.arrange(self._unstack(bases, kind)) for kind in (True, False))
        begun = self._descent.begin(list(trainable.values()))
        scales = [scale] if self._descent.optimiser.schedule is not None else []
        state = self._in_steps((trainable, begun, fixed, scales), (inputs, targets))
        tensors = self._passes.restore(state[0] | state[2])
        rows = [tensors[entry.name].reshape(len(bases), -1) for entry in self._layout.entries]
        return torch.cat([row.to(self._layout.dtype) for row in rows], dim=1)

    def _in_steps(self, state: State, batches: Batch) -> State:
        if self._take_steps is None:
            self._take_steps = self._one_by_one
            # On a GPU the whole training is recorded.
            if batches[1].is_cpu and (tape := self._record(state, taken(batches, 0))).is_small(LARGEST_TAPE):
                self._take_steps = tape.replay
        return self._take_steps(state, batches)

    def _one_by_one(self, state: State, batches: Batch) -> State:
        state = tree_map(torch.clone, state)
        for at in range(len(batches[1])):
            self._step(state, taken(batches, at))
        return state

    def _step(self, state: State, batch: Batch) -> None:
        """One step for all clients, in place."""
        trainable, begun, fixed, scales = state
        with torch.enable_grad():
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in trainable.items()}
            outputs = self._passes.forward({**leaves, **fixed, **self._frozen}, batch[0])
            loss = self._summed_loss(outputs, batch[1])
            found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        scale = scales[0] if scales else 1.0
        self._descent.step(list(trainable.values()), list(found), begun, scale, stacked=True)

    def _summed_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of all clients' losses; no client's weights touch another's loss."""
        if self._is_joint:
            return self._task.loss(outputs.flatten(0, 1), targets.flatten(0, 1)) * len(outputs)
        return vmap(self._task.loss)(outputs, targets).sum()

    def _record(self, state: State, batch: Batch) -> Tape:
        try:
            return Tape(self._step, state, batch)
        except Exception as error:
            drawing = "it draws random numbers (dropout), which differ from client to client"
            reason = drawing if "randomness" in str(error) else described(error)
            raise CannotStackError(self._task.name, reason) from error

    def _unstack(self, bases: Tensor, trainable: bool) -> Tensors:
        """Parts of `bases`, in its memory."""
        size, entries = len(bases), [each for each in self._layout.entries if each.trainable is trainable]
        return {e.name: cast(bases[:, e.start : e.stop], e.dtype).reshape(size, *e.shape) for e in entries}


class RecordedStack:
    """A stack whose whole training is one CUDA graph: inputs are copied in, the result copied out."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: tuple[Any, ...] = ()
        self._result = torch.empty(0)

    def train(self, *arguments: Any) -> Tensor:
        graph = self._graph = self._graph or self._capture(*arguments)
        torch._foreach_copy_(tree_leaves(self._arguments), tree_leaves(arguments))
        graph.replay()
        return self._result.clone()

    def _capture(self, *arguments: Any) -> torch.cuda.CUDAGraph:
        self._arguments = tree_map(torch.clone, arguments)
        # Libraries set themselves up on first use, which must not be part of the graph.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._stack.train(*self._arguments)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._result = self._stack.train(*self._arguments)
        return graph


class Passes(NamedTuple):
    """How a network is gone through for many clients, and what it must be given."""

    forward: Forward
    frozen: Tensors
    """By hand every layer is given its tensors; a module has the frozen ones itself."""
    arrange: Callable[[Tensors], Tensors] = dict
    restore: Callable[[Tensors], Tensors] = dict
    """Tensors as the pass wants them, and back as the module has them."""


def passes_of(
    task: Task, module: nn.Module, device: torch.device, frozen: Tensors, precision: Precision
) -> Passes:
    inputs = task.train.inputs
    if not isinstance(inputs, Tensor):
        return Passes(_vmapped(module), {})
    if device.type == "cuda" and find_spec("triton"):
        from plexus.learn.engines import kernels

        if layers := kernels.layers_of(module, tuple(inputs.shape[1:])):
            arrange = partial(kernels.arranged, layers)
            return Passes(kernels.forward_of(layers, precision), frozen, arrange, partial(arrange, back=True))
    by_hand = forward_of(module) if device.type != "cuda" else None
    return Passes(by_hand, frozen) if by_hand else Passes(_vmapped(module), {})


def _vmapped(module: nn.Module) -> Forward:
    def one(tensors: Mapping[str, Tensor], inputs: Inputs) -> Any:
        return called(lambda *given, **names: functional_call(module, dict(tensors), given, names), inputs)

    return vmap(one)


def forward_of(module: nn.Module) -> Forward | None:
    """The stacked forward pass of a perceptron, or None if `module` is anything else."""
    dense = (nn.Linear, nn.ReLU, nn.Flatten)
    layers, in_sequence = layers_in(module), type(module).forward is nn.Sequential.forward
    if not layers or not in_sequence or not all(type(each) in dense for _, each in layers):
        return None

    def forward(tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        x = inputs
        for name, layer in layers:
            if isinstance(layer, nn.Linear):
                weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            else:
                x = torch.relu(x) if isinstance(layer, nn.ReLU) else x.flatten(2)
        return x

    return forward


def layers_in(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Those of a sequence, by name; none if there is one that cannot be done by hand."""
    # Not `named_children`, which leaves out one that comes again.
    layers = [(name, each) for name, each in module._modules.items() if each is not None]
    has_tied = len(list(module.parameters())) < len(list(module.named_parameters(remove_duplicate=False)))
    has_hooks = any(each._forward_hooks or each._forward_pre_hooks for each in module.modules())
    return layers if all(is_known(each) for _, each in layers) and not has_tied and not has_hooks else []


def is_known(layer: nn.Module) -> bool:
    """Whether it can be done by hand, here or in `kernels`."""
    if type(layer) is nn.Conv2d:
        side, padding = layer.kernel_size[0], layer.padding
        plain = (layer.stride, layer.dilation, layer.groups) == ((1, 1), (1, 1), 1)
        keeps_size = layer.kernel_size == (side, side) and padding == (side // 2,) * 2 and side % 2
        return bool(plain and keeps_size and layer.padding_mode == "zeros" and layer.bias is not None)
    if type(layer) is nn.GroupNorm:
        return layer.affine
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices
    return layer.bias is not None if type(layer) is nn.Linear else type(layer) is nn.ReLU
