"""Learning in a process of its own, so that events go on meanwhile: they never depend on weights.

`ModelsAhead` stands for `LazyModels` in the process of the simulator. It numbers models and passes on, in
order, what is asked and which models nobody holds any more; the other process does that with a `LazyModels`,
so it computes the same and spares the same. What evaluations find comes back in order. Whoever is too far
ahead waits.

Threads read and write the pipe: Ctrl-C, which strikes the main thread alone, cuts no message in two.
Whichever process ends, however it ends, the other hears of it by the end of the pipe.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from _thread import interrupt_main
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partialmethod
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from socket import SHUT_RDWR, socketpair
from typing import TYPE_CHECKING, Any

from plexus.errors import MissingDataError, MissingModuleError, PlexusError, TaskError, described
from plexus.experiment.evaluation import Outline, Then
from plexus.experiment.learning import Machinery, lazy_models
from plexus.machine import cpu_s
from plexus.runs.result import ChosenEngine, Costs, Metrics
from plexus.spec.experiment import ExperimentSpec, parse_spec
from plexus.traces.world import Device

if TYPE_CHECKING:
    from plexus.learn.graph import LazyModels

MOST_EVALUATIONS = 4
"""So many may be outstanding: learning is never further behind."""
BATCH, MOST_NOTED = 256, 20_000
"""How much of what is asked is sent together, and how much may be that the other process has not seen to."""
GRACE_S = 10.0
"""After this a process that is to end is ended."""
NO_QUESTION = math.inf


class ModelAhead:
    """A model as the simulator knows it, by its number; the other process is told when nobody holds it."""

    __slots__ = ("_gone", "number")

    def __init__(self, number: int, gone: Callable[[int], None]) -> None:
        self.number, self._gone = number, gone

    def __del__(self) -> None:
        self._gone(self.number)

    def __reduce__(self) -> tuple[Any, ...]:
        return _there, (self.number,)


class ModelsAhead:
    def __init__(
        self, spec: ExperimentSpec, base_dir: Path, machinery: Machinery, devices: Sequence[Device]
    ) -> None:
        self._socket, theirs = socketpair()
        # Not by `multiprocessing`, which would run the user's script once more. In a session of its own:
        # signals are for the simulator to hear.
        start = "import sys; sys.path[:] = sys.argv[2:]"
        start = f"{start}; from {__name__} import Learner; Learner(int(sys.argv[1])).run()"
        command = [sys.executable, "-c", start, str(theirs.fileno()), *map(str, sys.path)]
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        self._pipe = Connection(os.dup(self._socket.fileno()))
        self._noted: deque[bytes | int] = deque()
        """What is to be sent, each put there in one step: a model that is gone; or a method, what it is
        given, the number of the model that comes of it, and that of the question, if it is one."""
        self._wake: SimpleQueue[int | None] = SimpleQueue()
        """Lets that be sent, and then the number of the first question that is still of interest."""
        self._answers: SimpleQueue[Any] = SimpleQueue()
        for work in (self._send, self._receive):
            threading.Thread(target=work, daemon=True).start()
        self._questions, self._models = count(), count()
        self._count = self._seen = 0
        self._then: dict[float, Callable[[Any], None]] = {}
        """By question that is outstanding, who is to be told."""
        self._merged: tuple[Any, ModelAhead] | None = None
        self.costs = Costs()
        self.evaluated: list[Metrics] = []
        self._initial = ModelAhead(-1, self._noted.append)
        self.made: tuple[ChosenEngine, Outline, int | None]
        try:
            given = (spec.to_toml(), base_dir, machinery, list(devices))
            self.made, self.model_bytes, self.initial_hash = self._answer("set_up", *given)
        except BaseException:
            self.close()
            raise

    def initial(self) -> ModelAhead:
        return self._initial

    def train(self, model: ModelAhead, node: int, round: int) -> ModelAhead:
        self.costs.asked += 1
        return self._new("train", model, node, round)

    def mean(self, *given: Any) -> ModelAhead:
        return self._new("mean", *given)

    def merge(self, models: Sequence[ModelAhead], weights: Sequence[float]) -> ModelAhead:
        parts = (tuple(model.number for model in models), tuple(weights))
        if self._merged is None or parts != self._merged[0]:
            self._merged = (parts, self._new("merge", models, weights))
        return self._merged[1]

    def interrupted(self, node: int) -> None:
        self._note("interrupted", (node,))

    def samples(self, node: int) -> int:
        return self.made[1].samples[node]

    def measure(self, then: Then, *what: Any) -> None:
        """Ask, and let `then` be told by and by."""
        self.hear()
        while len(self._then) >= MOST_EVALUATIONS:
            self._take(self._answers.get())
        self._ask(lambda found: then(*found), "measured", *what)

    def hear(self, wait: bool = False) -> None:
        """Pass on what was found meanwhile; or wait for all that is outstanding."""
        while not self._answers.empty() or (wait and self._then):
            self._take(self._answers.get())

    def drop(self) -> None:
        """Nobody wants to know any more what is outstanding: it is not computed."""
        if self._then:
            self._then.clear()
            self._wake.put(next(self._questions))

    def close(self) -> None:
        """End the other process, whatever it is doing; it gives back workers and files."""
        with self._socket, suppress(OSError):  # it is gone
            self._socket.shutdown(SHUT_RDWR)
        self._wake.put(None)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _new(self, method: str, *given: Any) -> ModelAhead:
        made = ModelAhead(next(self._models), self._noted.append)
        self._note(method, given, made.number)
        return made

    def _note(self, *what: Any) -> None:
        self._noted.append(pickle.dumps(what))  # now, lest it holds models
        self._count += 1
        if self._count % BATCH == 0:
            self._wake.put(None)
            while self._count - self._seen > MOST_NOTED:
                self._take(self._answers.get())

    def _ask(self, then: Callable[[Any], None], method: str, *given: Any) -> None:
        question = next(self._questions)
        self._note(method, given, None, question)
        self._then[question] = then  # after it, so that nobody waits for what was not asked
        self._wake.put(None)

    def _answer(self, method: str, *given: Any) -> Any:
        """Ask, and wait; what was asked before is answered before."""
        found: list[Any] = []
        self._ask(found.append, method, *given)
        while not found:
            self._take(self._answers.get())
        return found[0]

    weights_hash = partialmethod(_answer, "weights_hash")
    leave = partialmethod(_answer, "leave")
    save = partialmethod(_answer, "save")
    restore = partialmethod(_answer, "restore")
    replay = partialmethod(_answer, "replay")

    def _take(self, answer: Any) -> None:
        if answer is None:
            self._answers.put(None)  # whoever asks again is told the same
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            ended = f"the learning process ended with {self._process.returncode}"
            raise TaskError(f"{ended}: was it killed, is there enough memory?")
        question, value, error, self._seen, costs, evaluated = answer
        vars(self.costs).update(vars(costs), asked=self.costs.asked)
        self.evaluated += evaluated
        then = self._then.pop(question, None)
        if error is not None and (then is not None or question == NO_QUESTION):
            raise error
        if then is not None:
            then(value)

    def _send(self) -> None:
        with suppress(OSError):
            while True:
                first = self._wake.get()
                self._pipe.send([self._noted.popleft() for _ in range(len(self._noted))])
                if first is not None:
                    self._pipe.send(first)

    def _receive(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._answers.put(self._pipe.recv())
        self._answers.put(None)


_held: dict[int, Any] = {}


def _there(number: int) -> Any:
    """In the learning process: the model that has this number here."""
    return _held[number]


class Learner:
    """In the learning process: computes what is asked for until the simulator is done, or gone."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = Connection(descriptor)
        self._batches: SimpleQueue[list[bytes | int] | None] = SimpleQueue()
        self._at, self._first = NO_QUESTION, 0.0
        """The question that is worked on, and the first of which somebody wants to know the answer."""
        self._models: LazyModels | None = None
        self._seen = self._told = 0
        self._began_s = 0.0

    def run(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            with suppress(OSError):  # nobody is there any more
                while (batch := self._batches.get()) is not None:
                    for each in batch:
                        if isinstance(each, int):
                            _held.pop(each, None)
                        else:
                            self._do(*pickle.loads(each))
                    self._tell()
        finally:
            if self._models is not None:
                self._models.close()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                message = self._pipe.recv()
                if isinstance(message, list):
                    self._batches.put(message)
                else:
                    self._first = message
                    interrupt_main()
        self._batches.put(None)
        self._first = NO_QUESTION
        interrupt_main()
        time.sleep(GRACE_S)
        os._exit(1)

    def _interrupt(self, *_: Any) -> None:
        if self._at < self._first:
            self._at = NO_QUESTION  # once
            raise KeyboardInterrupt

    def _do(self, method: str, given: Any, makes: int | None = None, question: float = NO_QUESTION) -> None:
        self._seen += 1
        value = error = None
        try:
            self._at = question
            if question >= self._first:
                value = getattr(self if method == "set_up" else self._models, method)(*given)
            self._at = NO_QUESTION
        except KeyboardInterrupt:
            pass
        except Exception as failure:
            self._at, error = NO_QUESTION, _to_send(failure)
        if makes is not None:
            _held[makes] = value
        if error is not None or question < NO_QUESTION:
            self._tell(question, value, error)

    def set_up(self, spec: str, base_dir: Path, machinery: Machinery, devices: list[Device]) -> Any:
        models, made = lazy_models(parse_spec(spec, "the spec"), base_dir, machinery, devices)
        self._models, _held[-1], self._began_s = models, models.initial(), cpu_s()
        return made, models.model_bytes, models.initial_hash

    def _tell(self, question: float = NO_QUESTION, value: Any = None, error: Exception | None = None) -> None:
        costs, evaluated = Costs(), list[Metrics]()
        if self._models is not None:
            costs = replace(self._models.costs)
            costs.workers_cpu_s += cpu_s() - self._began_s
            evaluated, self._told = self._models.evaluated[self._told :], len(self._models.evaluated)
        self._pipe.send((question, value, error, self._seen, costs, evaluated))


def _to_send(error: Exception) -> Exception:
    """An error as the other process is to raise it."""
    for kind in (MissingDataError, MissingModuleError, TaskError, PlexusError):
        if isinstance(error, kind):
            return kind(str(error))
    return error if isinstance(error, OSError) else TaskError(f"learning failed: {described(error)}")
