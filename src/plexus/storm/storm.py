"""One storm from its plan to its outcome: real nodes, real simulator, faults, and checkers that look on."""

from __future__ import annotations

import traceback
from typing import Any

from msgspec import Struct

from plexus.protocol.api import Effect, Event
from plexus.protocol.messages import Message, NodeId
from plexus.rng import stream
from plexus.sim.protocols import initial_view
from plexus.sim.sharing import RULES
from plexus.storm.checkers import SAFETY, Checkers, RoundsComplete, Scene, ViewsAgree, Violation
from plexus.storm.checkers.api import Checker
from plexus.storm.conversation import Conversation
from plexus.storm.network import Codec
from plexus.storm.nodes import Learning, maker_of, roster_of, setting_of
from plexus.storm.plan import Plan
from plexus.storm.runtime import NodeObserver, ObservedNode, StormRuntime
from plexus.storm.script import Script
from plexus.storm.weather import Weather

TICKS = 12
"""How often during a storm the checkers look at the whole of it."""
QUIET_TICK_S = 20.0
KEPT_LINES = 4000
HANDLERS_ARE_TOTAL = "HandlersAreTotal"
"""The invariant that no checker looks for: whatever happens, no handler fails."""


class Finding(Struct, frozen=True):
    """An invariant that did not hold."""

    invariant: str
    node: NodeId | None
    text: str
    at_s: float
    trace: list[str]


class Outcome(Struct, frozen=True):
    """What came of a storm."""

    plan: Plan
    finding: Finding | None
    digest: str
    events: int
    rounds: int
    """Completed after the storm."""
    simulated_s: float


def run_storm(plan: Plan, kept_lines: int | None = KEPT_LINES, shown_lines: int = 25) -> Outcome:
    """Play the storm; `kept_lines` is how much of its conversation is remembered, None is all."""
    return Storm(plan, kept_lines).run(shown_lines)


class Storm(NodeObserver):
    """A session in a storm."""

    def __init__(self, plan: Plan, kept_lines: int | None = None, learning: Learning = None) -> None:
        self.plan = plan
        self.weather = Weather(stream(plan.seed, "storm", "weather"))
        setting = setting_of(plan, self._training_s, learning)
        self._training = [device.compute_ms_per_sample / 1000 for device in setting.world.devices]
        roster = roster_of(plan)
        make = maker_of(plan, setting, roster)
        devices = setting.world.devices
        self.runtime = StormRuntime(
            observer=self,
            notices=stream(plan.seed, "storm", "notices") if plan.connected else None,
            world=setting.world,
            nodes=[ObservedNode(make(node, 0, None, None), node, self) for node in range(plan.nodes)],
            models=setting.models,
            sharing=RULES[plan.sharing](
                [device.up_bytes_per_s for device in devices], [device.down_bytes_per_s for device in devices]
            ),
            training_s=self._training_s,
            observe=self._observe,
            leave_rng=stream(plan.seed, "leaves"),
        )
        self.conversation = Conversation(lambda: self.runtime.kernel.now, kept_lines)
        self.scene = Scene(plan, self.runtime, initial_view(setting.world))
        self._safety: list[Checker] = [
            checker(self.scene) for checker in SAFETY if learning is None or not checker.reads_labels
        ]
        self.rounds = RoundsComplete(self.scene)
        self.views = ViewsAgree(self.scene, self.rounds)
        self.checkers = Checkers(self._safety)
        model_bytes = setting.models.model_bytes
        codec_rng = stream(plan.seed, "storm", "codec")
        network = self.runtime.network
        network.weather = self.weather
        network.codec = Codec(roster, model_bytes, codec_rng)
        network.through_codec = plan.through_codec
        network.on_send = self._on_send
        network.on_lost = self.conversation.lost
        self.runtime.on_doom = lambda node: self.conversation.note(node, "loses power")
        script_rng = stream(plan.seed, "storm", "script")
        self.script = Script(plan, self.runtime, make, self.weather, script_rng)
        self.script.on_note = self.conversation.note
        self.script.on_restart = self._on_restart

    def run(self, shown_lines: int) -> Outcome:
        finding = None
        try:
            self.play()
        except Violation as violation:
            finding = self._finding(violation.invariant, violation.node, violation.text, shown_lines)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            finding = self._finding(HANDLERS_ARE_TOTAL, self._handling, text, shown_lines)
        kernel = self.runtime.kernel
        completed = len(getattr(self.rounds, "completed", ()))
        return Outcome(self.plan, finding, kernel.digest(), kernel.delivered, completed, kernel.now)

    def play(self) -> None:
        """Let the storm pass, and then time until all is well again. Raises what is found."""
        self.script.begin()
        for tick in range(1, TICKS + 1):
            self.runtime.run(self.plan.storm_s * tick / TICKS)
            self.checkers.tick()
        self.script.heal()
        self._heal()
        while not (self.rounds.is_satisfied and self.views.is_satisfied):
            self.runtime.run(self.runtime.kernel.now + QUIET_TICK_S)
            self.checkers.tick()

    def _heal(self) -> None:
        self.rounds.healed()
        self.views.healed()
        self.checkers = Checkers([*self._safety, self.rounds, self.views])

    def _finding(self, invariant: str, node: NodeId | None, text: str, shown_lines: int) -> Finding:
        trace = self.conversation.of(node, shown_lines)
        return Finding(invariant, node, text, self.runtime.kernel.now, trace)

    # What happens, for conversation and checkers

    _handling: NodeId | None = None

    def before(self, node: NodeId, event: Event) -> None:
        self._handling = node
        self.conversation.event(node, event)
        self.checkers.before(node, event)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        self.conversation.effects(node, effects)
        self.checkers.after(node, event, effects)

    def settled(self, node: NodeId) -> None:
        self.checkers.settled(node)

    def gone(self, node: NodeId) -> None:
        self.checkers.gone(node)

    def _on_send(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        self.checkers.sent(src, to, body)

    def _on_restart(self, node: NodeId, disk_is_lost: bool) -> None:
        self.checkers.restarted(node, disk_is_lost)

    def _observe(self, _: float, node: NodeId, fact: Any) -> None:
        self.checkers.reported(node, fact)

    def _training_s(self, node: NodeId) -> float:
        return self._training[node] * self.weather.training_factor(node)
