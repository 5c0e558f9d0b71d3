"""Conversations: a small session of nodes, told by a script what to do, prints what they say.

A script is text in blocks separated by empty lines: lines starting with # are comments; a block of
commands ends with a line of four dashes, and what follows it is what these commands print.

    nodes N [training_s=10,40] [latency_s=0.05] [model_s=1] …
                         a session of N nodes, all offline; other words are for who makes them
    online|leave|crash NODE …
    run SECONDS          let that much time pass
    run until TEXT       … until a line that contains these words was printed
    skip …               like run, but print nothing but the line waited for
    lose KIND A -> B     the next such message will be lost; `*` is any node
    hold KIND A -> B     … stays under way until it is delivered by hand
    deliver KIND A -> B  deliver the first such message under way now, whenever it was due
    timeout NAME NODE    this timer of the node runs out now
    state NODE …         what the node says of itself
    show|hide KIND …     print these messages, or timeouts of this name, or not

Derive from `Conversation` for more commands, from `TalkingExchange` for better words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from heapq import heapify
from typing import Any

from plexus.protocol import api
from plexus.protocol.api import Effect, Event, Received, TimerFired, WentOffline, WentOnline
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId
from plexus.testing.exchange import Exchange, Make

RULE = "----"
PATIENCE_S = 20_000.0
HELD_S = 1e9

Match = Callable[[NodeId, NodeId, Message], bool]


class TalkingExchange(Exchange):
    """A session that prints one line for each thing worth telling."""

    def __init__(self, n: int, make: Make, **options: Any) -> None:
        super().__init__(n, make, delays=self._scripted_delays, **options)
        self.lines: list[str] = []
        self.last: tuple[str, list[NodeId], str] | None = None
        self.awaited: str | None = None
        self.hidden: set[str] = set()
        self.lost_next: list[Match] = []
        self.held_next: list[Match] = []

    # Words

    def kind(self, body: Message) -> str:
        """What a script calls such a message."""
        return type(body).__name__.lower()

    def message(self, body: Message) -> str:
        fields = [getattr(body, name) for name in body.__struct_fields__ if name != "view"]
        return " ".join([self.kind(body), *map(str, fields)])

    def fact(self, fact: Fact) -> str | None:
        """What a node has done, after its number; None for what is not worth a line."""
        return f"reports {fact}"

    def presence(self, node: NodeId, is_online: bool) -> str:
        return "online" if is_online else "leaving"

    def state(self, node: NodeId) -> str:
        return f"{node}: {self.nodes[node]}"

    def _sentence(self, effect: Effect) -> str | None:
        match effect:
            case api.Train(k, model):
                return f"trains {model} in round {k}"
            case api.Aggregate(k, models, _, changes):
                parts = [*models, *(f"({each.trained} - {each.base})" for each in changes)]
                return f"aggregates round {k} of {' + '.join(parts)}"
            case api.Merge(k, models, _):
                return f"merges {' + '.join(models)} in round {k}"
            case api.Report(fact):
                return self.fact(fact)
        return None

    # Saying

    def say(self, text: str) -> None:
        self.last = None
        self._print(text)

    def say_now(self, text: str) -> None:
        self.say(f"{self.now:8.2f}  {text}")

    def _say_together(self, head: str, node: NodeId, tail: str) -> None:
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
        match event:
            case Received(src, body) if self.kind(body) not in self.hidden:
                self._say_together(f"{src} → ", node, f": {self.message(body)}")
            case TimerFired(key) if key[0] not in self.hidden:
                if any(not isinstance(each, api.SetTimer | api.CancelTimer | api.Save) for each in effects):
                    self.say_now(f"{node} timeout: {key[0]}")
            case WentOnline() | WentOffline():
                self._say_together("", node, f" {self.presence(node, isinstance(event, WentOnline))}")
            case api.Trained(k, model):
                self.say_now(f"{node} has trained {model} in round {k}")
        for text in filter(None, map(self._sentence, effects)):
            self.say_now(f"{node} {text}")

    def on_lost(self, src: NodeId, dst: NodeId, body: Message) -> None:
        if self.kind(body) not in self.hidden:
            self._say_together(f"{src} → ", dst, f": {self.message(body)} — lost")

    # Meddling

    def matcher(self, kind: str, src: str, dst: str) -> Match:
        return lambda s, d, body: self.kind(body) == kind and src in ("*", str(s)) and dst in ("*", str(d))

    def _scripted_delays(self, src: NodeId, dst: NodeId, body: Message) -> list[float]:
        for match in self.lost_next:
            if match(src, dst, body):
                self.lost_next.remove(match)
                self.on_lost(src, dst, body)
                return []
        for match in self.held_next:
            if match(src, dst, body):
                self.held_next.remove(match)
                return [HELD_S]
        return list(self.usual_delays(src, dst, body))

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


class Conversation:
    """The session a script talks to. Each command is a method, with a `do_` before it."""

    def __init__(self, start: Callable[..., TalkingExchange]) -> None:
        """`start(n, **options)` makes the session; options are the words of `nodes`, as text."""
        self._start = start
        self.session: TalkingExchange

    def rewritten(self, script: str) -> str:
        """The script with what its commands really print: a test compares it with the script."""
        blocks = []
        for block in script.strip().split("\n\n"):
            commands, rule, _ = (block + "\n").partition(f"\n{RULE}\n")
            if not rule:
                blocks.append(block.rstrip())
                continue
            for line in commands.splitlines():
                if not line.startswith("#"):
                    command, *words = line.split()
                    getattr(self, f"do_{command}")(*words)
            blocks.append("\n".join([commands, RULE, *self.session.lines]))
            self.session.lines, self.session.last = [], None
        return "\n\n".join(blocks) + "\n"

    def do_nodes(self, n: str, *options: str) -> None:
        given: dict[str, Any] = dict(option.split("=") for option in options)
        for name in given.keys() & {"latency_s", "model_s"}:
            given[name] = float(given[name])
        if "training_s" in given:
            given["training_s"] = [float(number) for number in given["training_s"].split(",")].__getitem__
        self.session = self._start(int(n), **given)

    def do_online(self, *nodes: str) -> None:
        self.session.go_online(*map(int, nodes))

    def do_leave(self, *nodes: str) -> None:
        for node in nodes:
            self.session.leave(int(node))

    def do_crash(self, *nodes: str) -> None:
        for node in nodes:
            self.session.say_now(f"{node} crashes")
            self.session.crash(int(node))

    def do_run(self, *words: str) -> None:
        if words[0] != "until":
            self.session.run(self.session.now + float(words[0]))
            return
        self.session.awaited = " ".join(words[1:])
        self.session.run_until(lambda: self.session.awaited is None, self.session.now + PATIENCE_S)

    def do_skip(self, *words: str) -> None:
        kept = len(self.session.lines)
        self.do_run(*words)
        del self.session.lines[kept : -1 if words[0] == "until" else None]

    def do_lose(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.lost_next.append(self.session.matcher(kind, src, dst))

    def do_hold(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.held_next.append(self.session.matcher(kind, src, dst))

    def do_deliver(self, kind: str, src: str, arrow: str, dst: str) -> None:
        self.session.deliver_now(self.session.matcher(kind, src, dst))

    def do_timeout(self, name: str, node: str) -> None:
        self.session.time_out(name, int(node))

    def do_state(self, *nodes: str) -> None:
        for node in nodes:
            self.session.say(self.session.state(int(node)))

    def do_show(self, *kinds: str) -> None:
        self.session.hidden -= set(kinds)

    def do_hide(self, *kinds: str) -> None:
        self.session.hidden |= set(kinds)


def numbers(nodes: Iterable[NodeId]) -> str:
    return " ".join(map(str, nodes))
