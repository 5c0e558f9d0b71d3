"""What a live peer keeps of its run: the tables that a simulated one has, as far as one peer can know them.

They lie in the peer's home and go on whenever it is started again. Time is counted from its first start.
Nodes have the numbers in which this peer met them, itself first; `nodes.csv` says their names. What only all
peers together know, such as what everybody has sent when a model is measured, stays empty: a fleet joins
the tables of its peers (`live.fleet.fleet_tables`).

A peer may run for weeks: each table is bounded, and the longer it has been running the seldomer it looks
around.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from plexus.errors import PlexusError
from plexus.live.identity.keys import short
from plexus.live.operator.log import Log
from plexus.live.state import RUN_FOLDER
from plexus.live.transport.limits import ByteCounts
from plexus.live.worker.client import Evaluated, Ready
from plexus.protocol.baselines.peers import PeerNode
from plexus.protocol.facts import (
    AggregationCompleted,
    Fact,
    ModelUpdated,
    TrainingInterrupted,
    TrainingStarted,
)
from plexus.protocol.messages import AggregateRequest, LateModel, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.runs.directory import go_on, live
from plexus.runs.run import started_s
from plexus.runs.tables import TABLES, Columns, read

MOST_BYTES = 4 * 2**20
"""Of each table."""
MOST_ROWS = 10_000
"""That wait for the disk."""
LOOK_S, LOOKS = 2.0, 1000
"""Between two looks lies at least this, and at least this part of the time since the first start."""
KINDS: dict[type, str] = {TrainRequest: "train", AggregateRequest: "aggregate", LateModel: "late"}


class PeerTables:
    """Is told what the peer does, and appends to its tables. A disk that is full costs rows, not the peer."""

    def __init__(self, home: Path, session: bytes, spec: str, key: bytes, log: Log) -> None:
        from plexus.spec.experiment import parse_spec

        self._path = home / RUN_FOLDER
        self._log = log
        digest = parse_spec(spec, "session").digest()
        self._recorder = go_on(self._path, spec, digest, MOST_BYTES, live([".."], session=session.hex()))
        self._offset_s = max(0.0, time.time() - started_s(self._path)) - time.monotonic()
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._failure = ""
        names = self._read("nodes").get("name", ())
        self._numbers = {str(name): number for number, name in enumerate(names)}
        self._before, states = self._last("traffic"), self._last("states")
        """What earlier processes of this peer had sent and trained."""
        self._received_before = states.get("received_bytes", 0)
        self._training_s = self._before.get("training_s", 0.0)
        self._training: tuple[float, int] | None = None
        """When the training under way began, and its round."""
        self._round = states.get("round", 0)
        self._is_online = False
        self._next_look_s = 0.0
        self._number(key)
        presence = self._last("presence")
        if presence.get("online"):  # it was killed, at the earliest when it was last seen
            last_s = max(presence["simulated_s"], states.get("simulated_s", 0.0))
            self._record("presence", simulated_s=last_s, node=0, online=False)

    def fact(self, fact: Fact) -> None:
        if isinstance(fact, TrainingStarted):
            self.training_ended(completed=False)
            self._training = self._now_s, fact.ordinal
            self._round = max(self._round, fact.ordinal)
        elif isinstance(fact, TrainingInterrupted):
            self.training_ended(completed=False)
        elif isinstance(fact, ModelUpdated):
            self._round = max(self._round, fact.round)
        elif isinstance(fact, AggregationCompleted):
            self._round = max(self._round, fact.ordinal)
            row = {name: getattr(fact, name) for name in ("models", "participants", "timed_out")}
            row["waited_s"] = round(fact.waited_s, 3)
            self._record("rounds", simulated_s=self._now_s, round=fact.ordinal, aggregator=0, **row)

    def evaluated(self, measure: Ready, round: int, found: Evaluated) -> None:
        metric = {measure.metric: found.value, "loss": found.loss, **found.others}
        unknown = {"sent_bytes": None, "training_s": None}
        self._record("evaluations", simulated_s=self._now_s, round=round, **metric, **unknown)

    def online(self, is_online: bool) -> None:
        if is_online != self._is_online:
            self._is_online = is_online
            self._record("presence", simulated_s=self._now_s, node=0, online=is_online)

    def look(
        self, traffic: ByteCounts, node: PlexusNode | PeerNode | None = None, last: bool = False
    ) -> Future[None]:
        """A moment to write down what was sent, and how many nodes the node believes to be online. The disk
        takes its time in a thread: while it does, rows wait."""
        while traffic.transfers:
            each = traffic.transfers.popleft()
            times = {"simulated_s": self._at(each.ended_at), "began_s": self._at(each.began_at)}
            ends = {"source": 0, "destination": self._number(each.to)}
            kind = KINDS.get(each.message, "exchange")
            self._record("transfers", **times, **ends, round=each.round, kind=kind, cut=each.cut)
        now_s = self._now_s
        if now_s >= self._next_look_s or last:
            self._next_look_s = now_s + max(LOOK_S, now_s / LOOKS)
            view = node.membership.view.online_count() if node is not None else None
            self._look_around(now_s, traffic, view)
        if self._failure:
            self._log.warning("not_recorded", reason=self._failure)
        if self._writing is None or self._writing.done() or last:
            written = self._writing
            rows, self._rows = self._rows, []
            self._writing = self._thread.submit(self._write, rows)
            if written is not None:
                written.result()  # raises what nobody expected
        return self._writing

    def close(self, traffic: ByteCounts) -> None:
        self.training_ended(completed=False)
        self.online(False)
        self.look(traffic, last=True)
        self._thread.shutdown()

    def _look_around(self, now_s: float, traffic: ByteCounts, view: int | None) -> None:
        trained_s, before = round(self._training_s, 3), self._before
        sent: dict[str, int] = {}
        for name, (count, size_bytes) in traffic.sent.items():
            sent[f"{name}_count"] = before.get(f"{name}_count", 0) + count
            sent[f"{name}_bytes"] = before.get(f"{name}_bytes", 0) + size_bytes
        received = sum(size for name, size in traffic.counts.items() if name.endswith("_received_bytes"))
        self._record("traffic", simulated_s=now_s, training_s=trained_s, **sent)
        itself = {"node": 0, "online": self._is_online, "view": view, "round": self._round}
        sent_bytes = sum(size for name, size in sent.items() if name.endswith("_bytes"))
        sums = {"sent_bytes": sent_bytes, "received_bytes": self._received_before + received}
        self._record("states", simulated_s=now_s, **itself, **sums, training_s=trained_s)

    def training_ended(self, completed: bool) -> None:
        """The one under way, if there is one."""
        if self._training is None:
            return
        (began_s, number), self._training = self._training, None
        now_s = self._now_s
        self._training_s += now_s - began_s
        self._record(
            "trainings", simulated_s=now_s, began_s=began_s, node=0, round=number, completed=completed
        )

    def _number(self, key: bytes) -> int:
        """The number that the node with this key has in these tables."""
        name = short(key)
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            unknown = dict.fromkeys(TABLES["nodes"].columns)
            self._record("nodes", **{**unknown, "node": self._numbers[name], "name": name})
        return self._numbers[name]

    @property
    def _now_s(self) -> float:
        return self._at(time.monotonic())

    def _at(self, monotonic_s: float) -> float:
        return round(self._offset_s + monotonic_s, 3)

    def _record(self, table: str, **columns: Any) -> None:
        if len(self._rows) < MOST_ROWS or table == "nodes":
            self._rows.append((table, columns))

    def _write(self, rows: list[tuple[str, dict[str, Any]]]) -> None:
        self._failure, is_failing = "", bool(self._failure)
        try:
            for table, columns in rows:
                if not is_failing or table == "nodes":  # others would pile up
                    self._recorder.record(table, **columns)
                if table == "nodes":
                    self._recorder.flush()  # whoever reads its number will want to know who it is
            self._recorder.flush()
        except PlexusError as error:
            self._failure = str(error)

    def _last(self, table: str) -> dict[str, Any]:
        """The newest row of a table; nothing where there is none."""
        return {name: column[-1].item() for name, column in self._read(table).items()}

    def _read(self, table: str) -> Columns:
        path = self._path / f"{table}.csv"
        try:
            return read(path)
        except PlexusError as error:  # the peer goes on, and so does the table, but anew
            self._log.warning("table_damaged", reason=str(error))
            path.replace(path.with_name(f"{path.name}.damaged"))
            return {}
