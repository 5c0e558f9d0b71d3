"""FedJAX, tried: a run that was stopped, and goes on from its checkpoint."""

from __future__ import annotations

import json
import sys
import tempfile

from fedjax.training import load_latest_checkpoint, save_checkpoint

from benchmarks.league.adapters import fedjax_rounds as league
from benchmarks.league.work import digest, make_work

ROUNDS = 6


def resume() -> dict[str, str]:
    """Half of the rounds, and the others from what that left: the weights of one that was not stopped?"""
    work = make_work(1, ROUNDS)
    averaging, state = league.set_up(work)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, ROUNDS + 1):
            state, _ = averaging.apply(state, league.clients(work, number))
            if number == ROUNDS // 2:
                try:
                    save_checkpoint(folder, state, number)
                except ImportError as error:
                    return {"answer": "not tried", "says": str(error).splitlines()[0]}
        resumed, done = load_latest_checkpoint(folder)
    for number in range(done + 1, ROUNDS + 1):
        resumed, _ = averaging.apply(resumed, league.clients(work, number))
    if digest(resumed.params) == digest(state.params):
        return {"answer": "yes", "says": "`save_checkpoint` and `load_latest_checkpoint`: the same weights"}
    return {"answer": "partly", "says": "goes on from its checkpoint, with other weights than without a stop"}


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps({'resume': resume()})}\n")
