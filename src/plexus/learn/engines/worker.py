"""What a worker process of the engine `processes` does: read a request, compute, answer.

A request is (kind, key, weights or None, arguments), or None to stop. `key` names the weights, which
are sent only if they are not those of the request before. An answer is (True, result, s) or (False, why, s)
with the seconds of processor time that were spent since the answer before.
"""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plexus.bench.usage import cpu_s
from plexus.errors import PlexusError, described
from plexus.learn.engines.shipping import unpack
from plexus.learn.trainer import Trainer


def work(connection: Connection, folder: str) -> None:
    """Serve requests until told to stop or until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; when to stop is for the engine to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    worker: _Worker | None = None
    told_s = 0.0
    while True:
        try:
            request = connection.recv()
            if request is None:
                return
            try:
                worker = worker or _Worker(Trainer(unpack(Path(folder)), torch.device("cpu")))
                answer = True, worker.answer(*request)
            except PlexusError as error:
                answer = False, str(error)
            except Exception as error:
                answer = False, f"a worker process failed: {described(error)}"
            spent_s = cpu_s() - told_s
            told_s += spent_s
            connection.send((*answer, spent_s))
        except (EOFError, OSError):
            return


class _Worker:
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._key = -1
        self._vector = trainer.initial

    def answer(self, kind: str, key: int, weights: Any, *arguments: int) -> Any:
        vector = self._known(key, weights)
        if kind == "train":
            return self._trainer.train(vector, *arguments).numpy()
        return self._trainer.evaluate_batch(vector, *arguments).tolist()

    def _known(self, key: int, weights: np.ndarray[Any, Any] | None) -> Tensor:
        if weights is not None:
            self._key, self._vector = key, torch.from_numpy(weights)
        assert key == self._key, "weights are sent unless they are those of the request before"
        return self._vector
