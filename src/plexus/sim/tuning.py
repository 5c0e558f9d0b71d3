"""How long a fixed round must be: measured in a short simulation without churn.

All nodes begin a round at once, train, and send their models. The duration is the time after which the
wanted share of all these transfers is complete (the paper: 99 %). The simulation has the same nodes,
devices and network, rounds so long that nothing is cut, and models that are never computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from plexus.errors import PlexusError
from plexus.protocol.api import Effect, Event, Node, Received
from plexus.runs.result import RoundTuning
from plexus.sim.session import Nodes, Setting, SymbolicModels, assemble
from plexus.traces.world import World, always_online

LONG_ROUND_S = 86_400.0
"""Nobody would wait longer for a round."""
STEP_S = 0.1
"""A duration is rounded up to a multiple of this."""


class TimedNode:
    """A node, and the times at which models reached it."""

    def __init__(self, node: Node, arrivals_s: list[float]) -> None:
        self._node = node
        self._arrivals_s = arrivals_s

    def handle(self, now: float, event: Event) -> list[Effect]:
        if type(event) is Received and hasattr(event.body, "model"):
            self._arrivals_s.append(now - (event.body.round - 1) * LONG_ROUND_S)
        return self._node.handle(now, event)


def tune_rounds(
    setting: Setting, nodes: Callable[[Setting, float], Sequence[Node]], rounds: int, share: float
) -> RoundTuning:
    """The duration by which `share` of the transfers of `rounds` rounds is complete.

    `nodes(setting, round_duration_s)` makes the nodes.
    """
    world = setting.world
    slowest_s = max(map(setting.training_s, range(len(world))))
    if slowest_s >= LONG_ROUND_S:
        raise _impossible(f"one training takes {slowest_s / 3600:.3g} hours")
    quiet = replace(
        setting,
        world=World(world.devices, always_online(len(world)), world.latency),
        models=SymbolicModels(setting.models.model_bytes),
        initial_model=None,
    )
    arrivals_s: list[float] = []
    watched = [TimedNode(node, arrivals_s) for node in nodes(quiet, LONG_ROUND_S)]
    runtime = assemble(quiet, Nodes(watched, quiet.world), lambda now, node, fact: None)
    runtime.run(math.nextafter(rounds * LONG_ROUND_S, 0))
    begun, _ = runtime.accounts.messages["model"]
    if not begun:  # a node alone: rounds need time for nothing but training
        arrivals_s.append(slowest_s)
    arrivals_s.sort()
    needed = max(1, math.ceil(share * begun - 1e-9))
    if needed > len(arrivals_s):
        done = f"{len(arrivals_s)} of {begun} transfers"
        raise _impossible(f"after {LONG_ROUND_S / 3600:g} hours only {done} are complete")
    return RoundTuning(
        round_duration_s=round(math.ceil(arrivals_s[needed - 1] / STEP_S) * STEP_S, 6),
        transfers=begun,
        complete=share,
        slowest_s=arrivals_s[-1] if len(arrivals_s) >= begun else None,
    )


def _impossible(why: str) -> PlexusError:
    return PlexusError(f"protocol.round_duration_s cannot be tuned: {why}; give it in the spec")
