"""Every reader of outside bytes, with bytes that it accepts to begin from.

The rule is the same for all: bytes are read, or refused by an error that names them. Nothing else.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from plexus.dashboard.run import ShownRun
from plexus.data.importing import _member
from plexus.errors import PlexusError
from plexus.experiment.checkpoint import Checkpoint, read_checkpoint
from plexus.learn.tasks.cifar10 import RECORD_BYTES, TEST_FILE, TRAIN_FILES, read_cifar10
from plexus.learn.tasks.leaf import read_leaf
from plexus.learn.tasks.movielens import read_ratings
from plexus.learn.tasks.writers import NPZ, read_idx, read_written_digits
from plexus.live.models import seal
from plexus.live.state import STATE_FILE, State, Store, encode_state, newest_model
from plexus.protocol.messages import AggregateRequest, Joined, Ping
from plexus.protocol.roster import Roster
from plexus.protocol.view import View
from plexus.protocol.wire import LENGTH_BYTES, WireError, decode, encode
from plexus.report.arms import group, load
from plexus.report.comparison import compare, table_of
from plexus.runs.result import Metric, Result, Traffic, Trainings
from plexus.runs.run import RESULT, SPEC, VERSIONS
from plexus.sim.topologies import parse_graph
from plexus.spec.experiment import load_spec, parse_spec
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import read_devices
from plexus.traces.readers.latency import read_latency, read_places

SESSION = b"a session"
MODEL = b"the bytes of a model"
SPEC_TEXT = 'name = "x"\nnodes = 5\nhours = 1\n[task]\nname = "digits"\n'
RUN_SPEC = parse_spec(SPEC_TEXT, "fuzz.toml").to_toml()
EVALUATIONS = "simulated_s,round,accuracy,sent_bytes,training_s\n1.0,1,0.5,10,2.0\n2.5,2,,20,4.0\n"
ROUNDS = (
    b"simulated_s,round,aggregator,models,participants,timed_out,waited_s\n"
    b"10.5,1,3,4,5,false,1.5\n20.25,2,0,5,5,true,2.5\n"
)
OUTCOME = Result(
    digest="12",
    weights_hash="34",
    rounds=2,
    simulated_s=20.5,
    cpu_s=1.0,
    wall_s=1.0,
    metric=Metric("accuracy", 0.5, None, higher_is_better=True),
    messages={"ping": Traffic(3, 60)},
    training_s=4.0,
    trainings=Trainings(2, 2),
    interrupted=False,
    out="runs/x",
)


class Reader(NamedTuple):
    """Something that reads bytes: given them and a folder of its own, it reads them or refuses."""

    read: Callable[[bytes, Path], object]
    valid: list[bytes]
    refuses: type[Exception] = PlexusError


def _roster() -> Roster:
    return Roster.simulated(SESSION, 3)


def _wire(data: bytes, _: Path) -> object:
    return decode(data, _roster())


def _messages() -> list[bytes]:
    view = View.of(3, [(0, 5), (2, 7)]).snapshot()
    bodies = (Ping(1, 2), Joined(3, 4), AggregateRequest(4, 3, 3, 2, 10, view, None))
    return [encode(body, _roster(), 99)[LENGTH_BYTES:] for body in bodies]


def _file(read: Callable[[Path], object], name: str = "file") -> Callable[[bytes, Path], object]:
    """A reader of a file."""

    def of(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return of


def _folder(read: Callable[[Path], object], *names: str) -> Callable[[bytes, Path], object]:
    """A reader of a folder in which these files have the same bytes."""

    def of(data: bytes, folder: Path) -> object:
        for name in names:
            (folder / name).write_bytes(data)
        return read(folder)

    return of


def _run(name: str) -> Callable[[bytes, Path], object]:
    """A run directory in which one file is what was given, looked at by dashboard and report."""

    def of(data: bytes, folder: Path) -> object:
        (folder / VERSIONS).write_text('{"spec_digest": "1"}')
        (folder / SPEC).write_text(RUN_SPEC)
        (folder / "evaluations.csv").write_text(EVALUATIONS)
        (folder / name).write_bytes(data)
        ShownRun("run", folder).overview()
        return table_of(compare(group([load(folder)])))

    return of


def _state(data: bytes, folder: Path) -> object:
    (folder / STATE_FILE).write_bytes(data)
    store = Store(folder, Roster(SESSION), on_error=lambda error: None)
    try:
        return store.model()
    finally:
        store.close()


def _held(data: bytes, folder: Path) -> object:
    """A node whose model is what was given."""
    state = State(session=SESSION, round=7, model_file="m", model_seal=seal(MODEL))
    (folder / STATE_FILE).write_bytes(encode_state(state))
    (folder / "m").write_bytes(data)
    return newest_model(folder)


def _checkpoint(data: bytes, folder: Path) -> object:
    (folder / "checkpoint.json").write_bytes(data)
    (folder / "checkpoint-1").mkdir(exist_ok=True)
    (folder / "checkpoint-1" / "models-0.safetensors").write_bytes(MODEL)
    return read_checkpoint(folder)


def _graph(data: bytes, _: Path) -> object:
    return parse_graph(data.decode("utf-8", "replace"), "edgelist", 3)


def _archive(path: Path) -> object:
    with _member(path, "a") as content:
        return content.read()


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"content " * 20)
    return buffer.getvalue()


def _arrays(save: Callable[..., None], *args: Any, **kwargs: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **kwargs)
    return buffer.getvalue()


def _digits() -> bytes:
    images, ones = np.zeros((2, 28, 28), np.uint8), np.ones(2, np.int64)
    parts = {"x": images, "y": ones, "writer": ones}
    named = {f"{name}_{part}": a for name, a in parts.items() for part in ("train", "test")}
    return _arrays(np.savez_compressed, **named)


IDX = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(6))
LEAF = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[0.5]], "y": [1]}}}
DEVICES = {7: {"computation": 20.0, "communication": 8000.0}}
CHECKPOINT = Checkpoint(
    1.0,
    "00",
    "11",
    [],
    2,
    "checkpoint-1",
    {"models-0.safetensors": blake2b(MODEL, digest_size=16).hexdigest()},
)
BATCH = bytes([3]) + bytes(RECORD_BYTES - 1)

READERS: dict[str, Reader] = {
    "wire": Reader(_wire, _messages(), WireError),
    "spec": Reader(
        lambda data, _: parse_spec(data.decode("utf-8", "replace"), "fuzz.toml"),
        [
            SPEC_TEXT.encode(),
            b'name="x"\nnodes=5\nhours=1\n[task]\nname="digits"\n[protocol]\nname="gossip"\n',
        ],
    ),
    "spec file": Reader(_file(load_spec, "s.toml"), [SPEC_TEXT.encode()]),
    "topology": Reader(_graph, [b"0 1\n1 2\n"], ValueError),
    "devices": Reader(
        _file(read_devices),
        [
            pickle.dumps(DEVICES),
            json.dumps(DEVICES).encode(),
            b"compute_ms_per_sample,up_kbps,down_kbps\n20,8000,8000\n",
        ],
    ),
    "availability": Reader(
        _file(read_availability),
        [
            b"device,start_s,end_s\n0,10,20\n1,0,5\n",
            pickle.dumps(
                {
                    1: {
                        "duration": 211625,
                        "inactive": [65881],
                        "finish_time": 518400,
                        "active": [12788],
                        "model": "CPH1801",
                    }
                }
            ),
            json.dumps({"1": {"active": [5], "inactive": [9], "finish_time": 50}}).encode(),
        ],
    ),
    "latency": Reader(_file(read_latency), [b",A,B\nA,0,10\nB,12,0\n", b"0,10\n12,0\n"]),
    "places": Reader(_file(read_places), [b"name,lat,lon\nA,1,2\nB,3,4\n"]),
    "checkpoint": Reader(_checkpoint, [msgspec.json.encode(CHECKPOINT)]),
    "node state": Reader(_state, [encode_state(State(session=SESSION, counter=7))]),
    "newest model": Reader(_held, [MODEL]),
    "run versions": Reader(_run(VERSIONS), [b'{"spec_digest": "12", "plexus": "1"}']),
    "run spec": Reader(_run(SPEC), [RUN_SPEC.encode()]),
    "run result": Reader(_run(RESULT), [msgspec.json.encode(OUTCOME)]),
    "run evaluations": Reader(_run("evaluations.csv"), [EVALUATIONS.encode()]),
    "run rounds": Reader(_run("rounds.csv"), [ROUNDS]),
    "run online": Reader(_run("online.csv"), [b"simulated_s,online\n0.0,5\n60.0,4\n"]),
    "idx": Reader(_file(read_idx), [IDX]),
    "idx, gzipped": Reader(_file(read_idx, "file.gz"), [gzip.compress(IDX)]),
    "cifar10": Reader(_folder(read_cifar10, *TRAIN_FILES, TEST_FILE), [BATCH]),
    "leaf": Reader(_folder(read_leaf, "all.json"), [json.dumps(LEAF).encode()]),
    "movielens": Reader(
        _folder(read_ratings, "ratings.csv"), [b"userId,movieId,rating,timestamp\n1,2,3.5,9\n2,2,4.0,9\n"]
    ),
    "digits by writer": Reader(_folder(read_written_digits, NPZ), [_digits()]),
    "archive": Reader(_file(_archive), [_zip()]),
}


def check(name: str, data: bytes, folder: Path) -> None:
    """Give `data` to a reader; anything but success or its own refusal is an error."""
    reader = READERS[name]
    try:
        reader.read(data, folder)
    except reader.refuses as refusal:
        if "\n" in str(refusal).strip() and reader.refuses is not WireError:
            raise AssertionError(f"more than one line: {refusal}") from refusal
