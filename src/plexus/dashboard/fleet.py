"""A live fleet as the page wants it: the nodes' own answers, and their logs where there are any."""

from __future__ import annotations

import http.client
import threading
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from plexus.dashboard.slices import binned, peaks, plain, take, window
from plexus.dashboard.source import Json
from plexus.errors import PlexusError
from plexus.files import named
from plexus.live.fleet.logs import History, LogTail
from plexus.live.operator import control
from plexus.live.transport.addresses import parse
from plexus.runs.tables import Columns, rows

# Live nodes as the dashboard reaches them: at a socket file in their home, or at an address.

TIMEOUT_S = 3.0
MAX_ANSWER_BYTES = 1_000_000
LOG_FILE = "log.jsonl"

Picture = dict[str, Any]
NOT_YET: Picture = {
    "address": "",
    "certificate_days_left": None,
    "round": 0,
    "training": None,
    "waiting_for": [],
    "peers": {"known": 0, "linked": 0},
    "transfers": [],
    "bandwidth_bytes_per_s": 0,
    "metric": None,
    "counts": {"errors": 0, "link_sent_bytes": 0, "link_received_bytes": 0},
}
"""What a node that has just been started does not say of itself."""


class Member(Protocol):
    """One node."""

    label: str
    log: Path | None

    def ask(self) -> Picture | None:
        """Its status (see `plexus.live.operator.status`), or None if it does not answer."""


class HomeMember:
    """A node on this machine, by its home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.label = home.name
        self.log: Path | None = home / LOG_FILE

    def ask(self) -> Picture | None:
        try:
            return control.ask(self.home, "status")
        except (PlexusError, msgspec.DecodeError):
            return None


class AddressMember:
    """A node by the address of its `--metrics`."""

    def __init__(self, address: str) -> None:
        self.label = address
        self.log: Path | None = None
        self._address = parse(address)

    def ask(self) -> Picture | None:
        connection = http.client.HTTPConnection(*self._address, timeout=TIMEOUT_S)
        try:
            connection.request("GET", control.STATUS_PATH)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES)
            picture = msgspec.json.decode(body)
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            return None
        finally:
            connection.close()
        return picture if isinstance(picture, dict) and "phase" in picture else None


def members_of(fleet: Path) -> list[Member]:
    """The nodes of a fleet directory, in order."""
    return [HomeMember(home) for home in sorted(fleet.glob("node-*")) if home.is_dir()]


def ask_all(members: Sequence[Member]) -> list[Picture | None]:
    """The status of each, asked at the same time."""
    if not members:
        return []
    with ThreadPoolExecutor(max_workers=min(32, len(members))) as pool:
        found = pool.map(lambda member: member.ask(), members)
        return [None if picture is None else NOT_YET | picture for picture in found]


PARTS = ("sampling_s", "transfer_s", "training_s", "aggregation_s")
FRESH_S = 0.8
"""Nodes are not asked more often than this, however many pages are open."""
NAME_LENGTH = 12
"""Nodes call each other by so much of their names; a log may hold the whole."""
KINDS = {"TrainRequest": "train", "AggregateRequest": "aggregate"}


class LiveFleet:
    """Nodes that run, or ran, as processes."""

    kind = "fleet"

    def __init__(self, id: str, name: str, members: Sequence[Member], directory: Path | None = None) -> None:
        self.id = id
        self._name = name
        self._members = members
        self._directory = directory
        self._history = History()
        self._logs = [LogTail(member.log) if member.log else None for member in members]
        self._pictures: list[Picture | None] = [None] * len(members)
        self._looked_s = 0.0
        self._lock = threading.Lock()

    def stamp(self) -> str:
        self._look()
        return f"{self._looked_s}" if any(self._pictures) else f"{len(self._members)} silent"

    def summary(self) -> Json:
        self._look()
        evaluations, spec = self._history.table("evaluations"), self.spec()
        value = evaluations.get("value", np.empty(0))
        best = max if self._history.higher_is_better else min
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self._session_name(spec),
            "status": "running" if any(self._pictures) else "finished",
            "protocol": spec.get("protocol", {}).get("name", "plexus"),
            "task": spec.get("task", {}).get("name"),
            "nodes": len(self._members),
            "seed": spec.get("seed"),
            "until_s": None,
            "reached_s": self._now_s(),
            "rounds": self._round(),
            "metric": {
                "name": self._history.metric if len(value) else None,
                "best": float(best(value)) if len(value) else None,
                "final": float(value[-1]) if len(value) else None,
                "higher_is_better": self._history.higher_is_better,
            },
            "started": self._history.began_s,
            "spark": plain({"value": value[peaks(value, 60)]}, 4)["value"],
        }

    def overview(self) -> Json:
        summary, table = self.summary(), self._history.table
        evaluations = table("evaluations")
        if rows(evaluations):
            evaluations[self._history.metric] = evaluations.pop("value")
            evaluations = take(evaluations, peaks(evaluations[self._history.metric]))
        phases = table("phases")
        return {
            **summary,
            "spec": self.spec(),
            "versions": {},
            "result": None,
            "evaluations": plain(evaluations, 5),
            "online": plain(_online(table("presence"), self._now_s())),
            "views": {},
            "traffic": {},
            "phases": binned(phases, PARTS),
            "phase_means_s": {part: float(phases[part].mean()) for part in PARTS if rows(phases)},
            "nodes_known": {"names": self._names()},
            "sent_bytes": self._sent_bytes(),
            "statuses": [self._status(n) for n in range(len(self._members))],
        }

    def window(self, from_s: float, to_s: float) -> Json:
        self._look()
        found = window(self._history.table, from_s, to_s)
        if any(self._pictures) and to_s >= self._now_s() - 5:
            found["transfers"] = self._transfers()
            found["trainings"] = _with(found["trainings"], self._trainings())
        return found

    def node(self, number: int) -> Json | None:
        if not 0 <= number < len(self._members):
            return None
        self._look()

        def mine(name: str, column: str) -> Json:
            table = self._history.table(name)
            return plain(take(table, table[column] == number)) if rows(table) else {}

        return {
            "node": number,
            "name": self._names()[number],
            "status": self._pictures[number],
            "presence": mine("presence", "node"),
            "trainings": mine("trainings", "node"),
            "aggregated": mine("rounds", "aggregator"),
        }

    def _look(self) -> None:
        """Ask everybody, unless that has just been done."""
        with self._lock:
            if time.monotonic() - self._looked_s < FRESH_S:
                return
            self._pictures = ask_all(self._members)
            history = self._history
            for number, picture in enumerate(self._pictures):
                if picture is not None:
                    history.number_of[picture["node"]] = number
            lines = [
                (line["time"], number, line)
                for number, log in enumerate(self._logs)
                if log is not None
                for line in log.fresh()
            ]
            for _, number, line in sorted(lines, key=lambda each: each[0]):
                if "node" in line:
                    history.number_of.setdefault(str(line["node"])[:NAME_LENGTH], number)
                history.take(number, line)
            self._note_answers()
            self._looked_s = time.monotonic()

    def _note_answers(self) -> None:
        """Who answers is there, whatever its log says; who does not was there until its last line."""
        history = self._history
        for number, picture in enumerate(self._pictures):
            if history.began_s is None:
                history.began_s = time.time()
            now_s = round(time.time() - history.began_s, 3)
            is_known = history.is_online.get(number, False)
            if picture is not None and not is_known:
                history.online(now_s, number, True)
            elif picture is None and is_known:
                has_log = self._logs[number] is not None
                history.online(history.last_s[number] if has_log else now_s, number, False)
            if picture is not None and self._logs[number] is None:
                history.saw(now_s, number, picture)

    def _now_s(self) -> float:
        began_s = self._history.began_s
        if began_s is None:
            return 0.0
        if any(self._pictures):
            return time.time() - began_s
        tables = (self._history.table(name) for name in ("presence", "rounds", "evaluations"))
        return float(max((t["simulated_s"].max() for t in tables if rows(t)), default=0.0))

    def _round(self) -> int:
        rounds = self._history.table("rounds")
        known = [int(picture["round"]) for picture in self._pictures if picture]
        return max([*known, int(rounds["round"].max()) if rows(rounds) else 0])

    def _sent_bytes(self) -> int:
        """By the nodes that answer, and by those that said when they stopped."""
        counts = [picture["counts"] for picture in self._pictures if picture]
        return self._history.sent_bytes + sum(int(c.get("link_sent_bytes", 0)) for c in counts)

    def _session_name(self, spec: Json) -> str:
        told = next((p["session"] for p in self._pictures if p), None)
        return str(spec.get("name") or told or self._name)

    def spec(self) -> Json:
        if self._directory is None:
            return {}
        path = self._directory / "session" / "session.toml"
        try:
            with named(path):
                return tomllib.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:  # not text, or not TOML
            raise PlexusError(f"{path}: {error}") from None

    def _names(self) -> list[str]:
        by_number = {number: name for name, number in self._history.number_of.items()}
        return [by_number.get(n, member.label) for n, member in enumerate(self._members)]

    def _status(self, number: int) -> Json | None:
        picture = self._pictures[number]
        if picture is None:
            return None
        return {key: picture[key] for key in ("phase", "round", "training", "waiting_for", "peers")} | {
            "counts": picture["counts"]
        }

    def _transfers(self) -> dict[str, list[Any]]:
        """The models on their way now, as their senders see them."""
        columns: dict[str, list[Any]] = {
            name: [] for name in ("simulated_s", "began_s", "source", "destination", "round", "kind", "cut")
        } | {"progress": []}
        now_s = self._now_s()
        for number, picture in enumerate(self._pictures):
            for each in picture["transfers"] if picture else ():
                peer = self._history.number_of.get(each["peer"])
                if each["way"] != "out" or peer is None:
                    continue
                row = (now_s + 5, now_s - 5, number, peer, each["round"])
                kind = KINDS.get(each["kind"], "exchange")
                share = each["bytes"] / max(1, each["of_bytes"])
                for name, value in zip(columns, (*row, kind, 0, share), strict=True):
                    columns[name].append(value)
        return columns

    def _trainings(self) -> Columns:
        now_s = self._now_s()
        found = [
            (now_s + 5, now_s - picture["training"]["since_s"], n, picture["training"]["round"], 0)
            for n, picture in enumerate(self._pictures)
            if picture and picture["training"]
        ]
        names = ("simulated_s", "began_s", "node", "round", "completed")
        return dict(zip(names, map(np.array, zip(*found, strict=True)), strict=True)) if found else {}


def _online(presence: Columns, until_s: float) -> Columns:
    """How many there were, as steps, up to now."""
    if not rows(presence):
        return {}
    count = np.maximum(np.cumsum(np.where(presence["online"], 1, -1)), 0)
    at_s = presence["simulated_s"]
    before = np.concatenate(([0], count[:-1]))
    steps_s = np.column_stack((at_s - 0.001, at_s)).ravel()
    times_s = np.append(steps_s, max(until_s, float(at_s[-1]) + 0.001))
    return {"simulated_s": times_s, "online": np.append(np.column_stack((before, count)).ravel(), count[-1])}


def _with(table: dict[str, list[Any]], more: Columns) -> dict[str, list[Any]]:
    fresh = plain(more)
    if not table:
        return fresh
    return {name: [*values, *fresh.get(name, [])] for name, values in table.items()}
