"""gossipy, tried: delays in steps of its own time, nodes that are offline, saving and loading a simulator."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from pickle import PicklingError

import torch

from benchmarks.league.adapters import gossipy_rounds as league  # first: it stands for torchvision
from benchmarks.league.work import CLIENTS, digest, make_work

from gossipy.core import ConstantDelay, LinearDelay, Message, MessageType  # isort: skip
from gossipy.simul import GossipSimulator, SimulationReport  # isort: skip

DELAY_STEPS, ROUNDS = 3, 6


def virtual_time() -> dict[str, str]:
    """A message that takes three steps: when does it arrive?"""
    simulator = league.set_up(make_work(1, ROUNDS))
    simulator.delay = ConstantDelay(DELAY_STEPS)
    simulator.delta = 2 * DELAY_STEPS
    first: list[int] = []
    hub = simulator.nodes[league.HUB]
    hub.receive = lambda t, msg: first.append(t)
    simulator.start(n_rounds=1)
    if first[0] != DELAY_STEPS:
        return {"answer": "no", "says": f"a message delayed by {DELAY_STEPS} steps came after {first[0]}"}
    return {"answer": "yes", "says": f"in steps: a message delayed by {DELAY_STEPS} came after {first[0]}"}


def churn() -> dict[str, str]:
    """Nodes that are online half of the time: are messages to them lost, and does the rest go on?"""
    work = make_work(1, ROUNDS)
    simulator = league.set_up(work)
    simulator.online_prob = 0.5
    report = SimulationReport()
    simulator.add_receiver(report)
    simulator.start(n_rounds=ROUNDS)
    simulator.remove_receiver(report)
    lost, sent = report._failed_messages, report._sent_messages
    if not lost:
        return {"answer": "no", "says": "no message was lost to nodes that are offline half of the time"}
    return {"answer": "yes", "says": f"drawn in each step by `online_prob`: {lost} of {sent} messages lost"}


def bandwidth() -> dict[str, str]:
    """A delay by size: does a second transfer to the same node at the same time slow it down?"""
    simulator = league.set_up(make_work(1, ROUNDS))
    node = simulator.nodes[0]
    delay = LinearDelay(0.01, 1)
    key = node.model_handler.caching(0)
    model = Message(0, 0, league.HUB, MessageType.PUSH, (key,))
    alone, empty = delay.get(model), delay.get(Message(0, 0, league.HUB, MessageType.PULL, None))
    beside = [delay.get(Message(0, each, league.HUB, MessageType.PUSH, (key,))) for each in range(CLIENTS)]
    if not alone > empty:
        return {"answer": "no", "says": f"{alone} steps for a model, {empty} for nothing"}
    shared = "shared" if max(beside) > alone else "not shared"
    return {
        "answer": "partly" if max(beside) == alone else "yes",
        "says": f"`LinearDelay`: {alone} steps for a model, {empty} for nothing; links are {shared}",
    }


def resume() -> dict[str, str]:
    """Half of the rounds, saved, loaded, the other half: the weights of one that was not stopped?"""
    work = make_work(1, ROUNDS)
    whole = league.set_up(work)
    whole.start(n_rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "simulator")
        stopped = league.set_up(work)
        stopped.start(n_rounds=ROUNDS // 2)
        try:
            stopped.save(file)
        except PicklingError as error:
            return {
                "answer": "no",
                "says": f"`save` fails with torch {torch.__version__.split('+')[0]}: {error}",
            }
        league.set_up(make_work(2, ROUNDS))  # as in another process: its random numbers are others
        resumed = GossipSimulator.load(file)
    resumed.start(n_rounds=ROUNDS // 2)
    if digest(league.weights_of(resumed)) == digest(league.weights_of(whole)):
        return {"answer": "yes", "says": "`save` and `load`: the same weights"}
    return {"answer": "partly", "says": "`save` and `load` go on, with other weights than without a stop"}


if __name__ == "__main__":
    answers = {"virtual-time": virtual_time(), "churn": churn(), "bandwidth": bandwidth(), "resume": resume()}
    sys.stdout.write(f"\n{json.dumps(answers)}\n")
