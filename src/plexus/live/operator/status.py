"""What a peer can tell of itself: for `plexus node status`, for Prometheus and for the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from plexus.live.identity.admission import Admission
from plexus.live.identity.keys import short
from plexus.live.operator.log import Log
from plexus.live.runtime import Runtime
from plexus.live.transport import addresses
from plexus.live.transport.addresses import LiveRoster
from plexus.live.transport.hub import Hub
from plexus.live.worker.channel import Ready
from plexus.live.worker.client import Trainer
from plexus.protocol.api import TimerKey
from plexus.protocol.facts import AggregationCompleted, AggregatorChosen, Fact, SampleDerived
from plexus.protocol.messages import NodeId

AWAITED = {
    "ping": "answers to pings",
    "ack": "the aggregator's acknowledgement",
    "aggregation": "more models to aggregate",
    "start": "others to show up before the first round",
}
"""What a node cannot go on without, by the timer that ends the wait."""
ALARMS = {"readvertise": "a sign that somebody knows this node", "watchdog": "progress of the session"}
"""What the other timers watch over while the node goes on; they always run."""


class Observer:
    """Turns facts into log lines and remembers the newest."""

    def __init__(self, roster: LiveRoster, log: Log) -> None:
        self._roster = roster
        self._log = log
        self.round = 0
        self.aggregated = 0
        self.trained = 0
        self.sample: tuple[int, list[str]] | None = None
        self.aggregator: tuple[int, str] | None = None
        self.metric: dict[str, Any] | None = None

    def fact(self, fact: Fact) -> None:
        fields = {name: getattr(fact, name) for name in fact.__struct_fields__ if name != "model"}
        if isinstance(fact, SampleDerived):
            self.sample = fact.round, self._names(fact.sample)
            fields["sample"] = self.sample[1]
        elif isinstance(fact, AggregatorChosen):
            self.aggregator = fact.round, self._names((fact.aggregator,))[0]
            fields["aggregator"] = self.aggregator[1]
        elif isinstance(fact, AggregationCompleted):
            self.aggregated += 1
        self.round = max(self.round, fields.get("round", 0))
        self._log.info(type(fact).__name__, **fields)

    def evaluated(self, measure: Ready, round: int, value: float, loss: float) -> None:
        name = measure.metric
        self.metric = {"name": name, "round": round, "value": value, "loss": loss}
        self._log.info(
            "Evaluated",
            round=round,
            metric=name,
            value=value,
            higher_is_better=measure.higher_is_better,
            loss=loss,
        )

    @property
    def evaluated_round(self) -> int:
        return 0 if self.metric is None else int(self.metric["round"])

    def _names(self, nodes: tuple[NodeId, ...]) -> list[str]:
        return [short(self._roster.keys[node]) for node in nodes]


class Status:
    """A picture of the peer at this moment."""

    def __init__(
        self, name: str, phase: str, hub: Hub, runtime: Runtime, trainer: Trainer, facts: Observer
    ) -> None:
        self._name = name
        self.phase = phase
        """joining, online or leaving."""
        self.phase_since_s = time.time()
        self._hub = hub
        self._runtime = runtime
        self._trainer = trainer
        self._facts = facts
        self.online_peers = 0

    def enter(self, phase: str) -> None:
        self.phase, self.phase_since_s = phase, time.time()

    def picture(self) -> dict[str, Any]:
        facts, hub = self._facts, self._hub
        return {
            "session": self._name,
            "node": short(hub.admission.key),
            "phase": self.phase,
            "phase_since_s": round(time.time() - self.phase_since_s, 1),
            "address": addresses.show(addresses.unpack(hub.advertised)),
            "certificate_days_left": round((hub.admission.expires_s - time.time()) / 86400, 1),
            "round": facts.round,
            "sample": facts.sample and {"round": facts.sample[0], "nodes": facts.sample[1]},
            "aggregator": facts.aggregator and {"round": facts.aggregator[0], "node": facts.aggregator[1]},
            "training": self._training(),
            "waiting_for": self._waits(),
            "timers": self._timers(ALARMS),
            "peers": {"known": len(self._runtime.roster) - 1, "linked": len(hub.links)},
            "transfers": self._transfers(),
            "bandwidth_bytes_per_s": self._runtime.meter.bytes_per_s,
            "metric": facts.metric,
            "counts": self.counts(),
        }

    def counts(self) -> dict[str, int]:
        links = [link.connection for link in self._hub.links.values()]
        return {
            "rounds_aggregated": self._facts.aggregated,
            "events_handled": self._runtime.handled,
            "connections_refused": self._hub.refused,
            "errors": self._runtime.log.errors,
            "writes_failed": self._runtime.store.failed,
            "messages_lost": self._runtime.lost,
            "log_lines_lost": self._runtime.log.lost,
            "link_sent_bytes": self._hub.past_sent_bytes + sum(each.sent_bytes for each in links),
            "link_received_bytes": self._hub.past_received_bytes + sum(each.received_bytes for each in links),
            **self._hub.traffic.counts,
        }

    def _training(self) -> dict[str, Any] | None:
        if self._trainer.round is None or self._trainer.since_s is None:
            return None
        now = asyncio.get_running_loop().time()
        return {"round": self._trainer.round, "since_s": round(now - self._trainer.since_s, 2)}

    def _waits(self) -> list[dict[str, Any]]:
        now = asyncio.get_running_loop().time()
        waits = self._timers(AWAITED)
        if self._runtime.writing is not None:
            since_s = round(now - self._runtime.writing_since, 2)
            waits.append({"what": "its state to be on the disk", "since_s": since_s})
        buffers = self._runtime.buffers
        if buffers.waiting_since is not None:
            what = f"room for {buffers.waiting} arriving models"
            waits.append({"what": what, "since_s": round(now - buffers.waiting_since, 2)})
        return waits

    def _timers(self, kinds: Mapping[str, str]) -> list[dict[str, Any]]:
        """The timers of these kinds that run now."""
        now = asyncio.get_running_loop().time()
        return [
            {
                "what": kinds[key[0]],
                "since_s": round(now - since, 2),
                "at_most_s": round(handle.when() - now, 2),
            }
            for key, (handle, since) in sorted(self._runtime.timers.items(), key=_by_name)
            if key[0] in kinds
        ]

    def _transfers(self) -> list[dict[str, Any]]:
        found = []
        size = self._runtime.buffers.size_bytes
        for link in self._hub.links.values():
            ways = (
                ("out", [(t.tag, t.sent_bytes) for t in link.sending.under_way.values()]),
                ("in", [(t.tag, t.received_bytes) for t in link.receiving.under_way.values()]),
            )
            for way, transfers in ways:
                for tag, moved in transfers:
                    if tag is not None:
                        what = {"kind": type(tag).__name__, "round": getattr(tag, "round", None)}
                        part = {"bytes": moved, "of_bytes": size}
                        found.append({"peer": short(link.key), "way": way, **what, **part})
        return found


def _by_name(item: tuple[TimerKey, Any]) -> TimerKey:
    return item[0]


def as_json(picture: dict[str, Any]) -> bytes:
    return msgspec.json.encode(picture)


def as_prometheus(picture: dict[str, Any]) -> bytes:
    """The numbers of a status in Prometheus' text format."""
    values: dict[str, float] = {
        "plexus_up": 1,
        "plexus_online": picture["phase"] == "online",
        "plexus_round": picture["round"],
        "plexus_peers_known": picture["peers"]["known"],
        "plexus_peers_linked": picture["peers"]["linked"],
        "plexus_transfers": len(picture["transfers"]),
        "plexus_training": picture["training"] is not None,
        "plexus_bandwidth_bytes_per_second": picture["bandwidth_bytes_per_s"],
        "plexus_certificate_days_left": picture["certificate_days_left"],
    }
    counters = {f"plexus_{name}_total": value for name, value in picture["counts"].items()}
    metric = picture["metric"]
    if metric is not None:
        values["plexus_metric_round"] = metric["round"]
        values["plexus_metric_value"] = metric["value"]
        values["plexus_metric_loss"] = metric["loss"]
    lines = []
    for kind, entries in (("gauge", values), ("counter", counters)):
        for name, value in entries.items():
            lines += [f"# TYPE {name} {kind}", f"{name} {float(value):.10g}"]
    return ("\n".join(lines) + "\n").encode()


def starting(session: str, admission: Admission, started_s: float) -> dict[str, Any]:
    """The picture of a peer whose training worker is not there yet."""
    since_s = round(time.time() - started_s, 1)
    return {
        "session": session,
        "node": short(admission.key),
        "phase": "starting",
        "phase_since_s": since_s,
        "address": addresses.show(None),
        "certificate_days_left": round((admission.expires_s - time.time()) / 86400, 1),
        "round": 0,
        **dict.fromkeys(("sample", "aggregator", "training", "metric")),
        "waiting_for": [{"what": "its training worker", "since_s": since_s}],
        "timers": [],
        "peers": {"known": 0, "linked": 0},
        "transfers": [],
        "bandwidth_bytes_per_s": 0,
        "counts": {},
    }
