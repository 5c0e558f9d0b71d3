"""Conversations of Plexus: its words, its parameters, and one more command.

    nodes N [s=2] [sf=0.8] [known=0,1] [bandwidths=5,9] …   other words are parameters of Plexus
    order K …            the hash order of these rounds

Kinds of message are ping, pong, joined, left, ack, train, aggregate, viewrequest and viewreply; `state` says
what a node is doing and whom it knows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from plexus.protocol.api import Effect, Event
from plexus.protocol.facts import (
    AggregationCompleted,
    AggregatorChosen,
    QuorumMissing,
    Readvertised,
    RoundRestarted,
    SampleDerived,
    Suspected,
    TrainingInterrupted,
)
from plexus.protocol.messages import (
    Ack,
    AggregateRequest,
    Joined,
    Left,
    Message,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
    ViewReply,
    ViewRequest,
)
from plexus.protocol.view import SUSPECTED
from plexus.testing.conversation import Conversation, TalkingExchange, numbers
from tests.protocol.kit import OF_THE_EXCHANGE, Checked, hash_order, make_node

KINDS = {TrainRequest: "train", AggregateRequest: "aggregate"}
ASKS = "whom do you know?"
SHORT_NAMES = {"s": "sample_size", "sf": "success_fraction"}
PURPOSES = {
    "first sample": "the first sample, that of round {}",
    "aggregator": "the sample of round {} to find its aggregator",
    "participants": "the sample of round {} to push its model to",
    "restart": "the sample of round {} by asking whether to start it",
}


def rewritten(script: str, **parameters: Any) -> str:
    """The script with what its commands really print."""
    return PlexusConversation(parameters).rewritten(script)


class PlexusConversation(Conversation):
    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(partial(started, parameters))

    def do_order(self, *rounds: str) -> None:
        for k in rounds:
            order = hash_order(len(self.session.nodes), int(k))
            self.session.say(f"round {k}: {numbers(order)}")


def started(parameters: dict[str, Any], n: int, **options: Any) -> TalkingExchange:
    network = {name: options.pop(name) for name in OF_THE_EXCHANGE if name in options}
    values = dict(parameters)
    for name, text in options.items():
        if name in ("known", "bandwidths"):
            values[name] = [int(number) for number in text.split(",") if number]
        else:
            values[SHORT_NAMES.get(name, name)] = float(text) if "." in text else int(text)
    return Talkative(n, lambda me, durable: make_node(me, n, durable=durable, **values), **network)


class Talkative(TalkingExchange, Checked):
    """A session of Plexus that says what its nodes do."""

    def on_event(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        TalkingExchange.on_event(self, node, event, effects)
        Checked.on_event(self, node, event, effects)

    def kind(self, body: Message) -> str:
        return KINDS.get(type(body), super().kind(body))

    def presence(self, node: NodeId, is_online: bool) -> str:
        return f"{super().presence(node, is_online)}, event {self.nodes[node].membership.counter}"

    def message(self, body: Message) -> str:
        match body:
            case Ping(0, k):
                return f"ping, round {k}"
            case Ping(exchange, k):
                return f"ping #{exchange}, round {k}"
            case Pong(exchange, k, held, event):
                number = f" #{exchange}" if exchange else ""
                gone = ", takes you as gone" if event & 3 == SUSPECTED else ""
                return f"pong{number}, knows round {k}, holds round {held}{gone}"
            case Joined(counter, bandwidth):
                return f"joined, event {counter}, bandwidth {bandwidth}"
            case Left(counter):
                return f"left, event {counter}"
            case Ack(k):
                return f"ack of round {k}"
            case TrainRequest(k, step, _, participants, _, model):
                return f"train {model} in round {k} for round {k + step}, {participants} participants"
            case AggregateRequest(round=k, model=model):
                return f"aggregate {model} for round {k}"
            case ViewRequest():
                return ASKS
            case ViewReply(view):
                return f"knows {np.count_nonzero(view.events)} nodes"
        raise TypeError(f"no words for {body}")

    def fact(self, fact: Any) -> str | None:
        match fact:
            case SampleDerived(k, _, purpose, sample, silent):
                gone = f", {silent} silent" if silent else ""
                return f"derives {PURPOSES[purpose].format(k)}: {numbers(sample)}{gone}"
            case TrainingInterrupted(_, k):
                return f"gives up its work of round {k}"
            case AggregatorChosen(k, _, aggregator, attempt):
                return f"sends its model to aggregator {aggregator} of round {k}, attempt {attempt}"
            case AggregationCompleted(_, _, model, models, participants, timed_out):
                late = ", at the timeout" if timed_out else ""
                return f"has {model} from {models} of {participants} models{late}"
            case RoundRestarted(k, _, held):
                return f"starts round {k} from the model of round {held}, because nobody else does"
            case Readvertised(attempt):
                return f"advertises itself again, attempt {attempt}"
            case Suspected(silent_one):
                return f"takes {silent_one} as gone"
            case QuorumMissing(k, _, found, needed):
                return f"finds {found} of the {needed} that round {k} needs, and waits"
        return None

    def state(self, me: NodeId) -> str:
        node = self.nodes[me]
        task = node.training
        if me not in self.online:
            doing = "offline"
        elif task.awaited is not None:
            doing = f"waits for an ack of {task.awaited}"
        elif task.trained is not None:
            doing = "looks for an aggregator"
        else:
            doing = "trains" if task.busy else "idle"
        collects = f", collects {len(node.aggregation._models)}" if node.aggregation.collecting else ""
        return (
            f"{me}: {doing}; k_train {task.k_train}, k_agg {node.aggregation.k_agg}{collects}; "
            f"holds {node.held_model}; online: {numbers(node.membership.view.actives())}"
        )
