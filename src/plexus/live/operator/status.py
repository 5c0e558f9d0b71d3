"""What a peer can tell of itself: for `plexus node status`, for Prometheus and for the log."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from plexus.live.identity.admission import Admission
from plexus.live.identity.keys import short
from plexus.live.operator.log import OTHERS, Log
from plexus.live.runtime import LiveRuntime
from plexus.live.transport import addresses
from plexus.live.transport.limits import LiveRoster
from plexus.live.worker.client import Ready, TrainingWorker
from plexus.protocol.baselines.peers import PeerNode
from plexus.protocol.beginning import START
from plexus.protocol.facts import (
    AggregationCompleted,
    AggregatorChosen,
    AnsweredLate,
    Fact,
    ModelUpdated,
    Refused,
    SampleDerived,
    Suspected,
)
from plexus.protocol.messages import ordinal_of
from plexus.protocol.plexus import PlexusNode

AWAITED = {
    "ping": "answers to pings",
    "ack": "the aggregator's acknowledgement",
    "aggregation": "more models to aggregate",
    "lone": "a second model of a round",
    "quorum": "enough others to go on with",
    "start": "others to show up before the first round",
    "view": "another node to tell whom it knows",
}
"""What a node cannot go on without, by the timer that ends the wait."""
ALARMS = {"readvertise": "a sign that somebody knows this node", "watchdog": "progress of the session"}
"""What the other timers watch over while the node goes on; they always run."""
TOLD_REASONS = 20
PRESSING_S = 86400.0
"""A certificate that runs out sooner is a problem."""
MOST_REASONS = 1000
"""Why something was refused, told apart; others may think up new reasons."""


class FactObserver:
    """Turns facts into log lines and remembers the newest."""

    def __init__(self, roster: LiveRoster, log: Log, round: int) -> None:
        self._roster = roster
        self._log = log
        self.round = round
        self.progress_at = 0.0
        """When something was last done for a round, by the clock of the loop; Plexus knows it better."""
        self.aggregated = 0
        self.answered_late = 0
        self.refused: Counter[str] = Counter()
        """How much was not believed, by why."""
        self.evaluated_round = 0
        self.sample: dict[str, Any] | None = None
        self.aggregator: dict[str, Any] | None = None
        self.metric: dict[str, Any] | None = None

    def fact(self, fact: Fact) -> None:
        fields = {name: getattr(fact, name) for name in fact.__struct_fields__ if name != "model"}
        # What people count as rounds are the ordinals; a fact may say nothing but the number.
        if "round" in fields and not isinstance(fact, ModelUpdated):
            fields["number"] = fields.pop("round")
        if "ordinal" in fields:
            fields["round"] = fields.pop("ordinal")
        if isinstance(fact, SampleDerived):
            fields["sample"] = [short(self._roster.keys[node]) for node in fact.sample]
            self.sample = {"round": fact.ordinal, "nodes": fields["sample"]}
        elif isinstance(fact, AggregatorChosen):
            fields["aggregator"] = short(self._roster.keys[fact.aggregator])
            self.aggregator = {"round": fact.ordinal, "node": fields["aggregator"]}
        elif isinstance(fact, AggregationCompleted):
            self.aggregated += 1
        elif isinstance(fact, Suspected):
            fields = {"peer": self._roster.keys[fact.node]}
        elif isinstance(fact, Refused):
            peer = self._roster.keys[fact.src]
            is_one_more = fact.why not in self.refused and len(self.refused) >= MOST_REASONS
            self.refused[OTHERS if is_one_more else fact.why] += 1
            self._log.warning("Refused", peer=peer, what=fact.what, reason=fact.why)
            return
        elif isinstance(fact, AnsweredLate):
            self.answered_late += 1
            self._log.warning("answered_late", peer=self._roster.keys[fact.node], after_s=fact.after_s)
            return
        if "round" in fields:
            self.progress_at, self.round = time.monotonic(), max(self.round, fields["round"])
        self._log.info(type(fact).__name__, **fields)

    def by_reason(self) -> dict[str, int]:
        """What was refused most often; the rest together, as others may think up new reasons."""
        told = dict(self.refused.most_common(TOLD_REASONS))
        rest = self.refused.total() - sum(told.values())
        return {**told, OTHERS: told.get(OTHERS, 0) + rest} if rest else told

    def evaluated(self, measure: Ready, round: int, value: float, loss: float) -> None:
        name, better = measure.metric, {"higher_is_better": measure.higher_is_better}
        self.evaluated_round = round
        self.metric = {"name": name, "round": round, "value": value, "loss": loss}
        self._log.info("Evaluated", round=round, metric=name, value=value, **better, loss=loss)


class PeersSeen(Struct, frozen=True):
    """How many others the peer knows of, has a link with, and of these by way of another one."""

    known: int = 0
    linked: int = 0
    relayed: int = 0


class PeerStatus(Struct, frozen=True, kw_only=True):
    """What a peer says of itself at one moment; its JSON is what operators and the dashboard read."""

    session: str
    node: str
    phase: str
    """starting, joining, online, ended or leaving."""
    phase_since_s: float
    certificate_days_left: float
    waiting_for: list[dict[str, Any]]
    address: str = addresses.show(None)
    round: int = 0
    sample: dict[str, Any] | None = None
    aggregator: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    timers: list[dict[str, Any]] = []
    peers: PeersSeen = PeersSeen()
    transfers: list[dict[str, Any]] = []
    bandwidth_bytes_per_s: int = 0
    metric: dict[str, Any] | None = None
    online_view: int = 0
    """How many nodes, itself among them, the peer believes online."""
    since_progress_s: float = 0.0
    """Since it last heard of a newer round, had another model, or came online."""
    problems: list[str] = []
    """What an operator should look into."""
    counts: dict[str, int] = {}
    sent_bytes: dict[str, int] = {}
    """By type of message, as the tables of a run have them."""
    refused: dict[str, int] = {}
    """What was not believed, by reason."""


class Status:
    """Looks at the parts of a peer, and says how it is."""

    def __init__(self, session: str, admission: Admission, patience_s: float) -> None:
        self._session, self._admission = session, admission
        self._patience_s = patience_s
        self._parts: tuple[LiveRuntime, TrainingWorker, FactObserver] | None = None
        self.enter("starting")

    def enter(self, phase: str) -> None:
        self.phase, self.phase_since_s = phase, time.time()

    def join(self, runtime: LiveRuntime, trainer: TrainingWorker, facts: FactObserver) -> None:
        """The training worker has started: from now on there is something to see."""
        self._parts = runtime, trainer, facts
        self.enter("joining")

    def now(self, joining: list[dict[str, Any]] | None = None) -> PeerStatus:
        """How the peer is; `joining` is what it waits for before it goes online."""
        since_s = round(time.time() - self.phase_since_s, 1)
        common: dict[str, Any] = {
            "session": self._session,
            "node": short(self._admission.key),
            "phase": self.phase,
            "phase_since_s": since_s,
            "certificate_days_left": round((self._admission.expires_s - time.time()) / 86400, 1),
        }
        if self._parts is None:
            return PeerStatus(**common, waiting_for=[{"what": "its training worker", "since_s": since_s}])
        runtime, trainer, facts = self._parts
        node = runtime.node if isinstance(runtime.node, PlexusNode) else None
        member = runtime.node if isinstance(runtime.node, PlexusNode | PeerNode) else None
        now = asyncio.get_running_loop().time()
        links = [link.connection for link in runtime.hub.links.values()]
        relayed = sum(each.relay is not None for each in links)
        progress_at = node.watchdog.progress_at if node else max(facts.progress_at, now - since_s)
        idle_s = round(now - progress_at, 1) if node or self.phase == "online" else 0.0
        training, unread_s = None, now - (trainer.unread_since or now)
        if trainer.since_s is not None:
            training = {"round": trainer.round, "since_s": round(now - trainer.since_s, 2)}
        return PeerStatus(
            **common,
            waiting_for=_waits(runtime) if joining is None else joining,
            address=addresses.show(addresses.unpack(runtime.hub.advertised)),
            round=facts.round,
            sample=facts.sample,
            aggregator=facts.aggregator,
            training=training,
            timers=_timers(runtime, ALARMS),
            peers=PeersSeen(len(runtime.roster) - 1, len(links), relayed),
            transfers=transfers_of(runtime),
            bandwidth_bytes_per_s=runtime.meter.bytes_per_s,
            metric=facts.metric,
            online_view=member.membership.view.online_count() if member else 0,
            since_progress_s=idle_s,
            problems=[
                *self._problems(0.0 if node and node.ending.is_over else idle_s, unread_s),
                *(f"not on the disk: {why}" for why in runtime.store.unwritten.values()),
            ],
            counts={**counts(runtime, facts), "trainings_failed": trainer.failed},
            sent_bytes={name: size for name, (_, size) in runtime.hub.traffic.sent.items()},
            refused=facts.by_reason(),
        )

    def _problems(self, idle_s: float, unread_s: float) -> list[str]:
        found = []
        if idle_s > self._patience_s:
            found.append(f"no progress for {idle_s:.0f} s")
        if unread_s > self._patience_s:
            found.append(f"the training worker has read nothing for {unread_s:.0f} s")
        left_s = self._admission.expires_s - time.time()
        if left_s < PRESSING_S:
            found.append(f"the certificate runs out in {left_s / 3600:.0f} h")
        return found


def counts(runtime: LiveRuntime, facts: FactObserver) -> dict[str, int]:
    """What only ever grows."""
    hub = runtime.hub
    links = [link.connection for link in hub.links.values()]
    return {
        "rounds_aggregated": facts.aggregated,
        "pings_answered_late": facts.answered_late,
        "events_handled": runtime.handled,
        "connections_refused": hub.refused,
        "clones_noticed": hub.clones,
        "relayed_bytes": hub.relay.relayed_bytes,
        "messages_refused": facts.refused.total(),
        "errors": runtime.log.errors,
        "writes_failed": runtime.store.failed,
        "messages_lost": runtime.lost,
        "log_lines_lost": runtime.log.lost,
        "link_sent_bytes": hub.past_sent_bytes + sum(each.sent_bytes for each in links),
        "link_received_bytes": hub.past_received_bytes + sum(each.received_bytes for each in links),
        **hub.traffic.counts,
    }


def _waits(runtime: LiveRuntime) -> list[dict[str, Any]]:
    now, node = asyncio.get_running_loop().time(), runtime.node
    waits = _timers(runtime, AWAITED)
    if START in runtime.timers and isinstance(node, PlexusNode):
        there, needed = node.view.online_count(), node.course.start_with or 1
        if there < needed:  # the timer only says when to count again
            are = "is" if there == 1 else "are"
            waits = [{"what": f"{needed} nodes before the first round; {there} {are} there"}]
    if runtime.writing is not None:
        since_s = round(now - runtime.writing_since, 2)
        waits.append({"what": "its state to be on the disk", "since_s": since_s})
    buffers = runtime.buffers
    if buffers.waiting:
        what = f"room for {len(buffers.waiting)} arriving models"
        waits.append({"what": what, "since_s": round(now - buffers.waiting[0].asked_at, 2)})
    return waits


def _timers(runtime: LiveRuntime, kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    now = asyncio.get_running_loop().time()
    return [
        {"what": kinds[key[0]], "since_s": round(now - since, 2), "at_most_s": round(handle.when() - now, 2)}
        for key, (handle, since) in sorted(runtime.timers.items(), key=lambda item: item[0])
        if key[0] in kinds
    ]


def transfers_of(runtime: LiveRuntime) -> list[dict[str, Any]]:
    """Models under way, rounds as people count them."""
    found = []
    for link in runtime.hub.links.values():
        transfers: dict[str, dict[int, Any]] = {"out": link.sending.under_way, "in": link.receiving.under_way}
        for way, under_way in transfers.items():
            for each in under_way.values():
                if each.tag is not None:  # else it is a probe
                    what = {"kind": type(each.tag).__name__, "round": ordinal_of(each.tag)}
                    part = {"bytes": each.moved_bytes, "of_bytes": runtime.buffers.size_bytes}
                    found.append({"peer": short(link.key), "way": way, **what, **part})
    return found


def as_prometheus(status: PeerStatus) -> bytes:
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    values: dict[str, float] = {
        "up": 1,
        "online": status.phase == "online",
        "round": status.round,
        "peers_known": status.peers.known,
        "peers_linked": status.peers.linked,
        "peers_relayed": status.peers.relayed,
        "transfers": len(status.transfers),
        "training": status.training is not None,
        "bandwidth_bytes_per_second": status.bandwidth_bytes_per_s,
        "certificate_days_left": status.certificate_days_left,
        "online_view": status.online_view,
        "seconds_since_progress": status.since_progress_s,
        "ended": status.phase == "ended",
        "problems": len(status.problems),
    }
    if status.metric is not None:
        values |= {f"metric_{name}": status.metric[name] for name in ("round", "value", "loss")}
    kinds = ((GaugeMetricFamily, values), (CounterMetricFamily, status.counts))
    families = [
        kind(f"plexus_{name}", name.replace("_", " "), value)
        for kind, numbers in kinds
        for name, value in numbers.items()
    ]
    labelled = {"refused": ("reason", status.refused), "sent_bytes": ("type", status.sent_bytes)}
    for name, (label, parts) in labelled.items():
        family = CounterMetricFamily(f"plexus_{name}", f"{name.replace('_', ' ')} by {label}", labels=[label])
        for part, value in parts.items():
            family.add_metric([part], value)
        families.append(family)
    return generate_latest(SimpleNamespace(collect=lambda: families))
