"""What a simulated session keeps of itself: rounds, who was online, and the tables for whoever looks closely.

The size of those is bounded. Of transfers and trainings a session keeps at most so many rows, spread over its
whole length: where more happens, the first of each thousandth of the session are kept. States are taken
so seldom that they stay below a number of rows. Presence and phases have a row for each join or leave
and for each round, and end after half a million. 1000 nodes for 50 hours stay below 30 MB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from math import isnan, nan
from statistics import fmean
from typing import Any

import numpy as np

from plexus.protocol import messages
from plexus.protocol.facts import AggregationCompleted, AggregatorChosen, Fact, Refused, RoundRestarted
from plexus.protocol.membership import Membership
from plexus.protocol.view import Snapshot
from plexus.protocol.wire import view_bytes
from plexus.runs.critical_path import CriticalPaths
from plexus.runs.recorder import Recorder
from plexus.runs.result import MOST_SUSPECTS, Believed, Suspect
from plexus.sim.lineage import WhoseWork
from plexus.sim.runtime import Runtime
from plexus.sim.session import Nodes
from plexus.sim.sharing import Flow
from plexus.traces.world import City

SLICES = 1000
MOST_ROWS = {"transfers": 200_000, "trainings": 100_000}
MOST_STATES = 50_000
MOST_LOOKS = 50
MOST_EVENTS = 500_000
SETTLED_AFTER_S = 3600.0
KINDS: dict[type, str] = {
    messages.TrainRequest: "train",
    messages.GlobalModel: "train",
    messages.AggregateRequest: "aggregate",
    messages.ClientModel: "aggregate",
    messages.LateModel: "late",
}


class Recording:
    """Observes a session (see `sim.network`) and appends to its tables."""

    def __init__(
        self, recorder: Recorder, until_s: float, interrupted: Callable[[int], None] = lambda node: None
    ) -> None:
        """`interrupted` is told of every node whose training does not come to its end."""
        self._recorder = recorder
        self._interrupted = interrupted
        self._slice_s = until_s / SLICES
        self._until_s = until_s
        self._written: Counter[str] = Counter()
        self._paths = CriticalPaths()
        self._transfers: dict[Flow, float] = {}
        self._trainings: dict[int, tuple[float, int]] = {}
        self._worked_on: dict[int, int] = {}
        self._next_states_s = 0.0
        self._nodes = self._servers = 0
        self._there = self._most_there = 0
        """How many are online, servers among them, and how many were at a time at most."""
        self._looks: list[tuple[float, int, float]] = []
        """When it was looked at views, how many nodes were online, and how many in the mean of the views."""
        self._aggregators: list[tuple[float, int, float]] = []
        """The same of the view of whoever completed a round."""
        self._refused: dict[tuple[int, str], Counter[int]] = {}
        """(node, reason) → who refused what it said, how often."""

    def begin(self, nodes: Nodes, training_s: Any) -> None:
        self._nodes, self._servers = len(nodes.world), nodes.servers
        latency = nodes.world.latency
        for node, device in enumerate(nodes.world.devices):
            row = int(latency.city_of[node])
            city = latency.cities[row] if latency.cities else City("", "", nan, nan)
            is_device = node < len(nodes.world) - nodes.servers
            self._recorder.record(
                "nodes",
                node=node,
                city=city.name or str(row),
                country=city.country,
                latitude=None if isnan(city.lat) else city.lat,
                longitude=None if isnan(city.lat) else city.lon,
                up_bytes_per_s=round(device.up_bytes_per_s),
                down_bytes_per_s=round(device.down_bytes_per_s),
                ms_per_sample=round(device.compute_ms_per_sample, 3) if is_device else None,
                training_s=round(training_s(node), 3) if is_device else None,
            )

    def used(self, trainings: Sequence[int], whose: WhoseWork) -> None:
        """Say, at the end, how much of what each device trained is behind the final model."""
        columns = zip(trainings, whose.trainings_used, whose.late_used, strict=True)
        for node, (finished, used, late) in enumerate(columns):
            self._recorder.record("used", node=node, trainings=finished, trainings_used=used, late_used=late)

    def look(self, now_s: float, runtime: Runtime) -> None:
        """A moment to note who is online and who the nodes believe to be, and to take accounts.

        It is seldom enough to look at every node.
        """
        online = runtime.online_count - self._servers
        self._recorder.record("online", simulated_s=now_s, online=online)
        held = map(_held_online, compress(runtime.nodes, runtime.online))
        if views := [view for view in held if view is not None]:
            extent = {"mean_view": fmean(views), "min_view": min(views), "max_view": max(views)}
            self._recorder.record("views", simulated_s=now_s, online=online, **extent)
            self._looks.append((now_s, online, extent["mean_view"]))
        counts: dict[str, int] = {}
        for name, (count, sent) in runtime.accounts.messages.items():
            counts |= {f"{name}_count": count, f"{name}_bytes": sent}
        trained_s = round(sum(runtime.accounts.training_s), 3)
        self._recorder.record("traffic", simulated_s=now_s, training_s=trained_s, **counts)
        if now_s >= self._next_states_s:
            looks = max(2, min(MOST_LOOKS, MOST_STATES // len(runtime.nodes)))
            self._next_states_s = now_s + self._until_s / looks
            self._states(now_s, runtime)

    def _states(self, now_s: float, runtime: Runtime) -> None:
        accounts = runtime.accounts
        for node, machine in enumerate(runtime.nodes):
            self._recorder.record(
                "states",
                simulated_s=now_s,
                node=node,
                online=runtime.online[node],
                view=_held_online(machine),
                round=self._worked_on.get(node, 0),
                sent_bytes=accounts.sent_bytes[node],
                received_bytes=accounts.received_bytes[node],
                training_s=round(accounts.training_s[node], 3),
            )

    def believed(self) -> Believed | None:
        """How many nodes those online held to be online, and how many were."""
        views, aggregators = _settled(self._looks), _settled(self._aggregators)
        return Believed(*views, aggregators[2] if aggregators else None) if views else None

    def notes(self) -> tuple[str, ...]:
        """What to know before believing the rest: whether there was anybody to talk to."""
        if self._most_there >= min(2, self._nodes):
            return ()
        few = "at most one node at a time" if self._most_there > self._servers else "nobody"
        return (f"{few} was online: take more nodes, more hours or another traces.availability",)

    def suspects(self) -> tuple[Suspect, ...]:
        """What was refused from whom, those first that were refused most often."""
        refused = self._refused.items()
        found = [Suspect(str(node), reason, by.total(), len(by)) for (node, reason), by in refused]
        return tuple(sorted(found, key=lambda each: -each.times)[:MOST_SUSPECTS])

    def on_fact(self, now_s: float, node: int, fact: Fact, runtime: Runtime) -> None:
        if isinstance(fact, AggregatorChosen) and fact.aggregator == node:
            # A node sends nothing to itself: its own model is there at once.
            self._paths.arrived("aggregate", fact.ordinal, node, node, now_s, now_s)
        elif isinstance(fact, AggregationCompleted):
            self._recorder.record(
                "rounds",
                simulated_s=now_s,
                round=fact.ordinal,
                aggregator=node,
                models=fact.models,
                participants=fact.participants,
                timed_out=fact.timed_out,
                waited_s=fact.waited_s,
            )
            self._worked_on[node] = max(fact.ordinal, self._worked_on.get(node, 0))
            if (view := _held_online(runtime.nodes[node])) is not None:
                self._aggregators.append((now_s, runtime.online_count - self._servers, view))
            if (phases := self._paths.phases(now_s, node, fact.ordinal)) is not None:
                self._keep("phases", now_s, **phases)
        elif isinstance(fact, Refused):
            self._refused.setdefault((fact.src, fact.why), Counter())[node] += 1
        if isinstance(fact, AggregationCompleted | RoundRestarted):
            self._paths.completed(node, fact.ordinal, now_s)

    def presence(self, now: float, node: int, online: bool) -> None:
        self._there += 1 if online else -1
        self._most_there = max(self._most_there, self._there)
        self._keep("presence", now, node=node, online=online)

    def training_began(self, now: float, node: int, round: int) -> None:
        self._trainings[node] = (now, round)
        self._worked_on[node] = max(round, self._worked_on.get(node, 0))

    def training_ended(self, now: float, node: int, completed: bool) -> None:
        began_s, number = self._trainings.pop(node)
        if completed:
            self._paths.trained(node, number, began_s, now)
        else:
            self._interrupted(node)
        self._keep("trainings", now, began_s=round(began_s, 3), node=node, round=number, completed=completed)

    def transfer_began(self, now: float, flow: Flow) -> None:
        self._transfers[flow] = now

    def struck(self, now: float, node: int, kind: str, until_s: float) -> None:
        self._recorder.record("faults", simulated_s=now, until_s=until_s, kind=kind, node=node)

    def transfer_ended(self, now: float, flow: Flow, arrival_s: float | None) -> None:
        began_s, body = self._transfers.pop(flow), flow.tag.body
        kind = KINDS.get(type(body), "exchange")
        number = messages.ordinal_of(body)
        if arrival_s is not None:
            self._paths.arrived(kind, number, flow.src, flow.dst, began_s, arrival_s)
        self._keep(
            "transfers",
            now,
            began_s=round(began_s, 3),
            source=flow.src,
            destination=flow.dst,
            round=number,
            kind=kind,
            cut=arrival_s is None,
        )

    def _keep(self, table: str, now_s: float, **columns: Any) -> None:
        """Add a row to this table, if it can still take one now."""
        most = MOST_EVENTS
        if table in MOST_ROWS:
            slices = min(SLICES, int(now_s / self._slice_s) + 1)
            most = MOST_ROWS[table] * slices // SLICES
        if self._written[table] < most:
            self._written[table] += 1
            self._recorder.record(table, **{"simulated_s": round(now_s, 3), **columns})


def _held_online(node: Any) -> int | None:
    """How many nodes are online according to its view, if it has one."""
    membership = getattr(node, "membership", None)
    return membership.view.online_count() if isinstance(membership, Membership) else None


def _settled(looks: Sequence[tuple[float, int, float]]) -> tuple[float, float, float] | None:
    """How many were held to be online, how many were, and their ratio; the hour in which views fill is left
    out, unless there is no other."""
    kept = [look for look in looks if look[0] > SETTLED_AFTER_S] or looks
    believed, online = (sum(look[at] for look in kept) for at in (2, 1))
    return (believed / len(kept), online / len(kept), believed / online) if online else None


def whole_view_bytes(nodes: int, is_signed: bool) -> int:
    """What a view that knows all nodes takes in a message."""
    return view_bytes(Snapshot(np.ones(nodes, np.uint32), np.zeros(nodes, np.uint32), is_signed))
