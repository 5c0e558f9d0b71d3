"""pfl-research, tried: a run that was stopped, and goes on by its RestoreTrainingCallback."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.restore_training import RestoreTrainingCallback

from benchmarks.league.adapters import pfl_rounds as league
from benchmarks.league.work import CLIENTS, Weights, digest, make_work

ROUNDS = 6


class StoppedError(Exception):
    """As if the process had been killed."""


class Stopping(FederatedAveraging):
    """Is stopped in the middle, while the first client of a round trains."""

    def train_one_user(self, *arguments: Any) -> Any:
        if arguments[-1].current_central_iteration == ROUNDS // 2:
            raise StoppedError
        return super().train_one_user(*arguments)


def run(
    folder: str | None = None, done: int = 0, kind: type[FederatedAveraging] = FederatedAveraging
) -> Weights:
    work = make_work(1, ROUNDS)
    _, backend, model = league.set_up(work, given=done * CLIENTS)
    algorithm = kind()
    callbacks = [RestoreTrainingCallback([model, algorithm], folder)] if folder else []
    return league.run(work, algorithm, backend, model, *callbacks)


def resume() -> dict[str, str]:
    """Stopped, and all of the rounds from what that left: the weights of one that was not stopped?"""
    whole = run()
    with tempfile.TemporaryDirectory() as folder:
        with suppress(StoppedError):
            run(folder, kind=Stopping)
        resumed = run(folder, done=ROUNDS // 2)
    if digest(resumed) == digest(whole):
        return {
            "answer": "yes",
            "says": "`RestoreTrainingCallback`: the same weights, if one's own data continues its draws",
        }
    if all(np.allclose(resumed[name], whole[name], atol=1e-5) for name in whole):
        return {"answer": "partly", "says": "`RestoreTrainingCallback`: the same weights up to rounding"}
    return {"answer": "partly", "says": "`RestoreTrainingCallback` goes on, with other weights"}


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps({'resume': resume()})}\n")
