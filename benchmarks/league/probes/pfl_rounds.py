"""pfl-research, tried: a run that was stopped, and goes on by its RestoreTrainingCallback."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace

import numpy as np
from pfl.callback.restore_training import RestoreTrainingCallback

from benchmarks.league.adapters import pfl_rounds as league
from benchmarks.league.work import CLIENTS, Weights, digest, make_work

ROUNDS = 6


def run(rounds: int, folder: str | None = None, done: int = 0) -> Weights:
    work = replace(make_work(1, ROUNDS), rounds=rounds)
    algorithm, backend, model = league.set_up(work, given=done * CLIENTS)
    callbacks = [RestoreTrainingCallback([model, algorithm], folder)] if folder else []
    return league.run(work, algorithm, backend, model, *callbacks)


def resume() -> dict[str, str]:
    """Half of the rounds, and all of them from what that left: the weights of one that was not stopped?"""
    whole = run(ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        run(ROUNDS // 2, folder)
        resumed = run(ROUNDS, folder, done=ROUNDS // 2)
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
