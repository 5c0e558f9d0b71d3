"""Runs conversation scripts: a small session of nodes, told what to do, prints what they say.

A script is text in blocks separated by empty lines: lines starting with # are comments; a block of
commands ends with a line of four dashes, and what follows it is what these commands print.

    nodes N [s=2] [sf=0.8] [known=0,1] [bandwidths=5,9] [training_s=10,40] [latency_s=0.05] [model_s=1] …
                         a session of N nodes, all offline; other words are parameters of Plexus
    order K …            the hash order of these rounds
    online|leave|crash NODE …
    run SECONDS          let that much time pass
    run until TEXT       … until a line that contains these words was printed
    skip …               like run, but print nothing but the line waited for
    lose KIND A -> B     the next such message will be lost; `*` is any node
    hold KIND A -> B     … stays under way until it is delivered by hand
    deliver KIND A -> B  deliver the first such message under way now, whenever it was due
    timeout NAME NODE    this timer of the node runs out now
    state NODE …         what the node is doing and whom it knows
    show|hide KIND …     print these messages or not: ping, pong, joined, left, ack, train, aggregate
"""

from __future__ import annotations

import re
from collections.abc import Callable
from heapq import heapify
from typing import Any

from plexus.protocol.api import (
    Aggregate,
    CancelTimer,
    Collect,
    Effect,
    Event,
    Received,
    Report,
    Save,
    Send,
    SetTimer,
    TimerFired,
    Train,
    Trained,
    WentOffline,
    WentOnline,
)
from plexus.protocol.facts import (
    AggregationCompleted,
    AggregatorChosen,
    Readvertised,
    RoundRestarted,
    SampleDerived,
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
)
from tests.protocol.kit import Exchange, hash_order

RULE = "----"
KINDS: dict[str, type[Message]] = {
    "ping": Ping,
    "pong": Pong,
    "joined": Joined,
    "left": Left,
    "ack": Ack,
    "train": TrainRequest,
    "aggregate": AggregateRequest,
}
NAMES = {kind: name for name, kind in KINDS.items()}
SHORT_NAMES = {"s": "sample_size", "sf": "success_fraction"}
PURPOSES = {
    "first sample": "the first sample, that of round {}",
    "aggregator": "the sample of round {} to find its aggregator",
    "participants": "the sample of round {} to push its model to",
    "restart": "the sample of round {} by asking whether to start it",
}
PATIENCE_S = 20_000.0


def rewritten(script: str) -> str:
    """The script with what its commands really print."""
    conversation = Conversation()
    blocks = []
    for block in script.strip().split("\n\n"):
        commands, rule, _ = (block + "\n").partition(f"\n{RULE}\n")
        if not rule:
            blocks.append(block.rstrip())
            continue
        for line in commands.splitlines():
            if not line.startswith("#"):
                conversation.obey(line)
        blocks.append("\n".join([commands, RULE, *conversation.printed()]))
    return "\n\n".join(blocks) + "\n"


class Conversation:
    """The session a script talks to."""

    def __init__(self) -> None:
        self.n = 0
        self.session = Talkative(0)

    def obey(self, line: str) -> None:
        command, *words = line.split()
        getattr(self, f"_{command}")(*words)

    def printed(self) -> list[str]:
        lines, self.session.lines = self.session.lines, []
        self.session.last = None
        return lines

    def _nodes(self, n: str, *options: str) -> None:
        self.n = int(n)
        given = dict(option.split("=") for option in options)
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name in ("known", "bandwidths"):
                values[name] = [int(number) for number in text.split(",") if number]
            elif name == "training_s":
                values[name] = [float(number) for number in text.split(",")].__getitem__
            else:
                values[SHORT_NAMES.get(name, name)] = float(text) if "." in text else int(text)
        self.session = Talkative(self.n, **values)

    def _order(self, *rounds: str) -> None:
        for k in rounds:
            self.session.say(f"round {k}: {numbers(hash_order(self.n, int(k)))}")

    def _online(self, *nodes: str) -> None:
        self.session.go_online(*map(int, nodes))

    def _leave(self, *nodes: str) -> None:
        for node in nodes:
            self.session.leave(int(node))

    def _crash(self, *nodes: str) -> None:
        for node in nodes:
            self.session.say_now(f"{node} crashes")
            self.session.crash(int(node))

    def _run(self, *words: str) -> None:
        if words[0] != "until":
            self.session.run(self.session.now + float(words[0]))
            return
        self.session.awaited = " ".join(words[1:])
        limit_s = self.session.now + PATIENCE_S
        self.session.run_until(lambda: self.session.awaited is None, limit_s)

    def _skip(self, *words: str) -> None:
        kept = len(self.session.lines)
        self._run(*words)
        del self.session.lines[kept : -1 if words[0] == "until" else None]

    def _lose(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.lost_next.append(matcher(kind, src, dst))

    def _hold(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.held_next.append(matcher(kind, src, dst))

    def _deliver(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.deliver_now(matcher(kind, src, dst))

    def _timeout(self, name: str, node: str) -> None:
        self.session.time_out(name, int(node))

    def _state(self, *nodes: str) -> None:
        for node in map(int, nodes):
            self.session.say(state(self.session, node))

    def _show(self, *kinds: str) -> None:
        self.session.hidden -= {KINDS[kind] for kind in kinds}

    def _hide(self, *kinds: str) -> None:
        self.session.hidden |= {KINDS[kind] for kind in kinds}


Match = Callable[[NodeId, NodeId, Message], bool]


def matcher(kind: str, src: str, dst: str) -> Match:
    return lambda s, d, body: NAMES[type(body)] == kind and src in ("*", str(s)) and dst in ("*", str(d))


class Talkative(Exchange):
    """A session that prints one line for each thing worth telling."""

    def __init__(self, n: int, **options: Any) -> None:
        super().__init__(n, delays=self._scripted_delays, **options)
        self.lines: list[str] = []
        self.last: tuple[str, list[NodeId], str] | None = None
        self.awaited: str | None = None
        self.hidden: set[type[Message]] = set()
        self.lost_next: list[Match] = []
        self.held_next: list[Match] = []

    # Saying

    def say(self, text: str) -> None:
        self.last = None
        self._print(text)

    def say_now(self, text: str) -> None:
        self.say(f"{self.now:8.2f}  {text}")

    def say_together(self, head: str, node: NodeId, tail: str) -> None:
        """The same of several nodes at the same time is one line."""
        head = f"{self.now:8.2f}  {head}"
        if self.last is not None and (self.last[0], self.last[2]) == (head, tail):
            self.last[1].append(node)
            self.lines.pop()
        else:
            self.last = (head, [node], tail)
        self._print(f"{head}{numbers(self.last[1])}{tail}")

    def _print(self, line: str) -> None:
        self.lines.append(line)
        if self.awaited is not None and re.search(re.escape(self.awaited) + r"(?!\w)", line):
            self.awaited = None

    def on_event(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, Received):
            if type(event.body) not in self.hidden:
                self.say_together(f"{event.src} → ", node, f": {message(event.body)}")
        elif isinstance(event, TimerFired):
            if any(not isinstance(e, SetTimer | CancelTimer | Save) for e in effects):
                self.say_now(f"{node} timeout: {event.key[0]}")
        elif isinstance(event, WentOnline | WentOffline):
            what = "online" if isinstance(event, WentOnline) else "leaving"
            self.say_together("", node, f" {what}, event {self.nodes[node].membership.counter}")
        elif isinstance(event, Trained):
            self.say_now(f"{node} has trained {event.model} in round {event.round}")
        for effect in effects:
            text = sentence(effect)
            if text:
                self.say_now(f"{node} {text}")

    def on_lost(self, src: NodeId, dst: NodeId, body: Message) -> None:
        if type(body) not in self.hidden:
            self.say_together(f"{src} → ", dst, f": {message(body)} — lost")

    # Meddling

    def _scripted_delays(self, src: NodeId, dst: NodeId, body: Message) -> list[float]:
        for match in self.lost_next:
            if match(src, dst, body):
                self.lost_next.remove(match)
                self.on_lost(src, dst, body)
                return []
        for match in self.held_next:
            if match(src, dst, body):
                self.held_next.remove(match)
                return [1e9]
        return list(self._usual_delays(src, dst, body))

    def deliver_now(self, match: Match) -> None:
        for entry in sorted(self._queue, key=lambda entry: entry[:2]):
            _, _, dst, event, _ = entry
            if isinstance(event, Received) and match(event.src, dst, event.body):
                self._queue.remove(entry)
                heapify(self._queue)
                self.deliver(dst, event)
                return
        raise LookupError("no such message is under way")

    def time_out(self, name: str, node: NodeId) -> None:
        [key] = [key for key in self.armed[node] if key[0] == name]
        del self.armed[node][key]
        self.deliver(node, TimerFired(key))


def numbers(nodes: Any) -> str:
    return " ".join(map(str, nodes))


def message(body: Message) -> str:
    match body:
        case Ping(0, k):
            return f"ping, round {k}"
        case Ping(exchange, k):
            return f"ping #{exchange}, round {k}"
        case Pong(exchange, k, held, _):
            return f"pong #{exchange}, knows round {k}, holds round {held}"
        case Joined(counter, bandwidth):
            return f"joined, event {counter}, bandwidth {bandwidth}"
        case Left(counter):
            return f"left, event {counter}"
        case Ack(k):
            return f"ack of round {k}"
        case TrainRequest(k, participants, _, model):
            return f"train {model} in round {k}, {participants} participants"
        case AggregateRequest(k, _, _, _, model):
            return f"aggregate {model} for round {k}"
    raise TypeError(f"no words for {body}")


def sentence(effect: Effect) -> str | None:
    match effect:
        case Train(k, model):
            return f"trains {model} in round {k}"
        case Aggregate(k, models, _):
            return f"aggregates round {k} of {' + '.join(models)}"
        case Report(fact):
            return fact_sentence(fact)
        case Send() | SetTimer() | CancelTimer() | Collect() | Save():
            return None
    raise TypeError(f"no words for {effect}")


def fact_sentence(fact: Any) -> str | None:
    match fact:
        case SampleDerived(k, purpose, sample, silent):
            gone = f", {silent} silent" if silent else ""
            return f"derives {PURPOSES[purpose].format(k)}: {numbers(sample)}{gone}"
        case TrainingInterrupted(k):
            return f"gives up its work of round {k}"
        case AggregatorChosen(k, aggregator, attempt):
            return f"sends its model to aggregator {aggregator} of round {k}, attempt {attempt}"
        case AggregationCompleted(k, model, models, participants, timed_out, _):
            late = ", at the timeout" if timed_out else ""
            return f"has {model} from {models} of {participants} models{late}"
        case RoundRestarted(k, held):
            return f"starts round {k} from the model of round {held}, because nobody else does"
        case Readvertised(attempt):
            return f"advertises itself again, attempt {attempt}"
    return None


def state(session: Talkative, me: NodeId) -> str:
    node = session.nodes[me]
    task = node.training
    if me not in session.online:
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
