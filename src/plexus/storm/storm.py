"""One storm from its plan to its outcome: real nodes, real simulator, faults, and checkers that look on.

It is kept as a conversation: who said what to whom, and what became of it.
"""

from __future__ import annotations

import re
import traceback
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from plexus.protocol.api import Effect, Event, PeerLost, Received, TimerFired, Trained, Undelivered
from plexus.protocol.facts import Fact
from plexus.protocol.messages import Message, NodeId
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot
from plexus.rng import stream
from plexus.sim.protocols import initial_view, session_key
from plexus.sim.session import Nodes, Setting
from plexus.storm.checkers import SAFETY
from plexus.storm.checkers.api import PlexusChecker, Scene, Violation, facts_in
from plexus.storm.checkers.liveness import NobodyIsStarved, RoundsComplete, ViewsAgree
from plexus.storm.network import Codec, Weather
from plexus.storm.nodes import INITIAL, MODEL_BYTES, Labels, Learning, maker_of, world_of
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, NodeObservers, ObservedNode, StormRuntime
from plexus.storm.script import Script

TICKS = 12
"""How often during a storm the checkers look at the whole of it."""
QUIET_TICK_S = 20.0
KEPT_LINES, SHOWN_LINES = 4000, 25
"""Of its conversation: remembered, and shown of a finding."""
HANDLERS_ARE_TOTAL = "HandlersAreTotal"
"""The invariant that no checker looks for: whatever happens, no handler fails."""


class Line(NamedTuple):
    """One thing that happened, and to whom. Put into words only when somebody reads it."""

    time_s: float
    nodes: tuple[NodeId, ...]
    thing: Message | Fact | str
    after: str = ""

    def __str__(self) -> str:
        what = self.thing if isinstance(self.thing, str) else in_words(self.thing)
        who = " → ".join(map(str, self.nodes)) + (":" if len(self.nodes) > 1 else "")
        return f"{self.time_s:9.2f}  {who} {what}{self.after}"


class StormTrace(NodeObserver):
    """The last lines of a storm, or all of them."""

    def __init__(self, clock: Callable[[], float], most: int | None) -> None:
        self._clock = clock
        self.lines: deque[Line] = deque(maxlen=most)

    def noted(self, node: NodeId, text: str) -> None:
        self._add((node,), text)

    def before(self, node: NodeId, event: Event) -> None:
        match event:
            case Received(src, body) if src != node:
                self._add((src, node), body)
            case TimerFired(key):
                self._add((node,), f"timeout: {key[0]}")
            case Undelivered(to, body):
                self._add((node, to), body, " — known not to have arrived")
            case PeerLost(lost):
                self._add((node,), f"has lost its connection with {lost}")
            case Trained(k):
                self._add((node,), f"has trained for round {k}")

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for fact in facts_in(effects, Fact):
            self._add((node,), fact)

    def lost(self, src: NodeId, dst: NodeId, body: Message, why: str) -> None:
        self._add((src, dst), body, f" — {why}")

    def of(self, node: NodeId | None) -> list[str]:
        """The last lines, of one node if one is named."""
        lines = [line for line in self.lines if node is None or node in line.nodes]
        return [str(line) for line in lines[-SHOWN_LINES:]]

    def _add(self, nodes: tuple[NodeId, ...], thing: Message | Fact | str, after: str = "") -> None:
        self.lines.append(Line(self._clock(), nodes, thing, after))


def in_words(thing: Message | Fact) -> str:
    """A message or a fact: its name and its fields. TrainRequest is a train request."""
    name = re.sub("(?<!^)(?=[A-Z])", " ", type(thing).__name__).lower()
    shown = [field for field in thing.__struct_fields__ if field not in ("address", "samples")]
    fields = [f"{field.removesuffix('_bytes_per_s')} {_value(getattr(thing, field))}" for field in shown]
    return f"{name} {', '.join(fields)}".strip()


def _value(value: object) -> str:
    if isinstance(value, Snapshot):
        return f"of {value.known}"
    return f"{value:.1f}" if isinstance(value, float) else " ".join(str(value).split())


class Finding(Struct, frozen=True):
    invariant: str
    node: NodeId | None
    text: str
    at_s: float
    trace: list[str]


class Outcome(Struct, frozen=True):
    plan: Plan
    finding: Finding | None
    digest: str
    rounds: int
    """Completed after the storm."""


def run_storm(plan: Plan) -> Outcome:
    return Storm(plan, KEPT_LINES).run()


class Storm(NodeObserver):
    def __init__(self, plan: Plan, kept_lines: int | None = None, learning: Learning = None) -> None:
        self.plan = plan
        self.weather = Weather(stream(plan.seed, "storm", "weather"))
        models, initial = learning or (Labels(MODEL_BYTES), INITIAL)
        setting = Setting(world_of(plan), models, initial, self._training_s, plan.seed, plan.sharing)
        initial_known = initial_view(setting.world, plan.is_wary)
        roster = Roster.simulated(session_key(plan.seed), plan.nodes, initial_known)
        make = maker_of(plan, setting, roster, initial_known)
        self._devices = setting.world.devices
        self.observers = NodeObservers()
        nodes = [ObservedNode(make(node, 0, None), node, self.observers) for node in range(plan.nodes)]
        notices = stream(plan.seed, "storm", "notices") if plan.connected else None
        self.runtime = StormRuntime(self.observers, notices, setting, Nodes(nodes, setting.world))
        self.conversation = StormTrace(lambda: self.runtime.kernel.now, kept_lines)
        self.scene = Scene(plan, self.runtime, initial_known)
        fit = [each for each in SAFETY if learning is None or not each.reads_labels]
        safety = (each for each in fit if plan.protocol == "plexus" or not issubclass(each, PlexusChecker))
        self.observers.add(self, self.conversation, *(checker(self.scene) for checker in safety))
        network = self.runtime.network
        network.weather = self.weather
        network.passes, network.connected = self.weather.passes, self.weather.connected
        network.codec = Codec(roster, models.model_bytes, stream(plan.seed, "storm", "codec"))
        network.through_codec = plan.through_codec
        self.script = Script(plan, self.runtime, make, self.weather, stream(plan.seed, "storm", "script"))
        self._handling: NodeId | None = None
        self._completed: set[int] = set()

    def run(self) -> Outcome:
        finding = None
        try:
            self.play()
        except Violation as violation:
            finding = self._finding(*violation.args)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            finding = self._finding(HANDLERS_ARE_TOTAL, self._handling, text)
        return Outcome(self.plan, finding, self.runtime.kernel.digest(), len(self._completed))

    def play(self) -> None:
        """Let the storm pass, and then time until all is well again. Raises what is found."""
        self.script.begin()
        for tick in range(1, TICKS + 1):
            self.runtime.run(self.plan.storm_s * tick / TICKS)
            self.observers.tell("tick")
        self.script.heal()
        rounds = RoundsComplete(self.scene)
        views = ViewsAgree(self.scene, rounds)
        fed = NobodyIsStarved(self.scene, rounds, views)
        self.observers.add(rounds, views, fed)
        self._completed = rounds.completed
        while not (rounds.is_satisfied and views.is_satisfied and fed.is_satisfied):
            self.runtime.run(self.runtime.kernel.now + QUIET_TICK_S)
            self.observers.tell("tick")
        self.observers.tell("ended")

    def before(self, node: NodeId, event: Event) -> None:
        self._handling = node

    def _finding(self, invariant: str, node: NodeId | None, text: str) -> Finding:
        return Finding(invariant, node, text, self.runtime.kernel.now, self.conversation.of(node))

    def _training_s(self, node: NodeId) -> float:
        return self._devices[node].compute_ms_per_sample / 1000 * self.weather.training_factor(node)
