"""What survives a crash: counter, newest model, round, view and addresses, written atomically.

One thread writes, in order, so that the event loop never waits for a disk. The counter is on the disk
before anybody hears of it, so it is never used twice. Of models only the newest is written, in the
background: after a crash the node may hold one some rounds old, as if it had crashed a little earlier.

The state file is a line that names the format, a digest, and MessagePack. Every damage is noticed; files of
another format are refused, not guessed at.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from safetensors.numpy import save

from plexus.errors import PlexusError
from plexus.files import named, read_bytes, write_bytes
from plexus.live.identity.admission import KEY_FILE
from plexus.live.identity.session_file import SESSION_FILE
from plexus.live.models import LiveModel, ModelLayout, fits
from plexus.live.room import BOUNDLESS, Room, keep
from plexus.protocol import wire
from plexus.protocol.api import Durable
from plexus.protocol.messages import ViewReply
from plexus.protocol.parameters import ENDLESS, Course
from plexus.protocol.roster import Roster
from plexus.protocol.view import Snapshot
from plexus.protocol.wire import WireError
from plexus.runs.encoding import KEPT, NAMES, WHOLE, unpacked
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL, MODEL_SUFFIX, is_better, metadata_of, parts_of
from plexus.runs.run import SPEC, VERSIONS, versions_of

STATE_FILE = "state.bin"
REST_FILE = "task.safetensors"
"""What a model that is taken home has besides the tensors that travel, and what it says of itself."""
LOCAL_FILE = "local.safetensors"
"""The tensors that stay with the node, after its last training; only where the task has some."""
RUN_FOLDER = "run"
"""The folder in a peer's home with the tables of its run."""
HELD_MODEL = re.compile(rf"\.?model-\d+{re.escape(MODEL_SUFFIX)}(\.new)?")
HEAD = b"plexus state 3\n"
DIGEST_BYTES = 16
REMEDY = (
    f"move {STATE_FILE} away and start again: the node joins anew and gets counter and model from the others"
)


class State(Struct, frozen=True, kw_only=True):
    session: bytes
    counter: int = 0
    round: int = 0
    ordinal: int = 0
    ended: int = 0
    """The round that the session has ended with, if the node knows that."""
    model_file: str = ""
    """Beside the state file; empty if the node holds none but the initial model."""
    model_seal: bytes = b""
    view: bytes = b""
    """As a frame of the protocol."""
    bandwidth_bytes_per_s: int = 0


class Store:
    def __init__(self, home: Path, roster: Roster, on_error: Callable[[BaseException], None]) -> None:
        self.home = home
        self._roster = roster
        self._on_error = on_error
        self.state = _state_in(home, roster.session)
        """What is on the disk."""
        self.failed = 0
        self.unwritten: dict[str, str] = {}
        """Of which kinds of file the newest is not on the disk, and why."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._lock = threading.Lock()
        self._pending: tuple[Durable, bytes] | None = None
        """The newest model that is not being written yet; changed under the lock."""

    def model(self, room: Room = BOUNDLESS) -> LiveModel | None:
        """The model held before the crash or stop."""
        return _read_model(self.home, self.state, room) if self.state.model_file else None

    def view(self) -> Snapshot | None:
        frame = self.state.view
        if not frame:
            return None
        try:
            body, _ = wire.decode(frame[wire.LENGTH_BYTES :], self._roster)
        except WireError as error:
            raise PlexusError(f"{self.home / STATE_FILE}: {error}; {REMEDY}") from None
        assert isinstance(body, ViewReply)
        return body.view

    def save_counter(
        self, counter: int, view: Snapshot, bandwidth_bytes_per_s: int, ended: int = 0
    ) -> Future[None]:
        """What others will hear of. Done when it is on the disk; fails if it cannot be written."""
        frame = wire.encode(ViewReply(view), self._roster)
        changes = {"counter": counter, "ended": ended, "view": frame}
        return self._thread.submit(self._update, **changes, bandwidth_bytes_per_s=bandwidth_bytes_per_s)

    def save_model(self, state: Durable) -> None:
        """Its model is on the disk soon, unless a newer one overtakes it."""
        frame = wire.encode(ViewReply(state.view), self._roster)
        with self._lock:
            is_asked_for = self._pending is not None
            self._pending = state, frame
        if not is_asked_for:
            self._thread.submit(self._write_newest)

    def keep_final(self, round: int, model: LiveModel) -> Future[None]:
        """The session has ended with this model: its owner takes it home. Done when it is on the disk."""
        return self._thread.submit(self._take_home, FINAL_MODEL, round, model)

    def offer_best(self, round: int, model: LiveModel, value: float) -> None:
        """A model was measured: on the disk soon, for its owner to take home, if it is the best so far."""
        self._thread.submit(self._write_if_best, round, model, value)

    def close(self) -> None:
        """Wait until everything is written."""
        self._thread.shutdown(wait=True)

    # In the thread

    def _write_newest(self) -> None:
        with self._lock:
            newest, self._pending = self._pending, None
        assert newest is not None
        if not is_newer(newest[0], self.state):
            return
        try:
            self._write_model(*newest)
        except PlexusError as error:
            self._on_error(error)

    def _write_model(self, state: Durable, view: bytes) -> None:
        name = f"model-{state.round}{MODEL_SUFFIX}"
        self._write(name, state.model.data, by=keep)
        held = {"round": state.round, "ordinal": state.ordinal, "model_file": name}
        try:
            self._update(**held, model_seal=state.model.seal, view=view)
        finally:  # there may be others from before a crash, and a disk may have no room for the state
            self._remove_all_but(_state_in(self.home).model_file)

    def _remove_all_but(self, held: str) -> None:
        with named(self.home):
            for path in self.home.iterdir():
                if path.name != held and HELD_MODEL.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def _write_if_best(self, round: int, model: LiveModel, value: float) -> None:
        try:
            if is_better(value, self.home / BEST_MODEL):
                self._take_home(BEST_MODEL, round, model, value=repr(value))
        except PlexusError as error:
            self._on_error(error)

    def _take_home(self, name: str, round: int, model: LiveModel, **more: str) -> None:
        about = {"session": self.state.session.hex(), "round": str(round), **more}
        self._write(name, *taken_home(self.home, model.data, about))

    def _update(self, **changes: Any) -> None:
        changed = msgspec.structs.replace(self.state, **changes)
        self._write(STATE_FILE, encode_state(changed))
        self.state = changed

    def _write(self, name: str, *data: bytes | memoryview, by: Callable[..., None] = write_bytes) -> None:
        kind = "model" if by is keep else name
        try:
            by(self.home / name, *data)
        except PlexusError as error:
            self.failed += 1
            self.unwritten[kind] = str(error)
            raise
        self.unwritten.pop(kind, None)


def check_home(home: Path, session: bytes) -> None:
    """Refuse what is damaged now, not when something better is to take its place; and a home of another
    session, whose models and tables would be mixed with those of this one."""
    state, run = home / STATE_FILE, home / RUN_FOLDER
    found = {state: read_state(state).session.hex()} if state.exists() else {}
    for path in filter(Path.exists, (home / BEST_MODEL, home / FINAL_MODEL)):
        found[path] = metadata_of(path).get("session", "")
    if (run / VERSIONS).exists():
        found[run] = str(versions_of(run).get("session", ""))
    for path, of in found.items():
        if of not in ("", session.hex()):  # nothing was said of it by earlier versions
            raise PlexusError(f"{path}: of another session; use another --home for this one")


def is_newer(state: Durable, on_disk: State) -> bool:
    """Whether the model of `state` takes the place of the one on the disk. The final one may be older."""
    return state.round > on_disk.round or (bool(state.ended) and state.round != on_disk.round)


class HeldModel(NamedTuple):
    """The newest model on a node's disk."""

    round: int
    ordinal: int
    data: memoryview
    home: Path


def newest_of(homes: Iterable[Path]) -> HeldModel | None:
    found = [held for home in homes if (held := newest_model(home)) is not None]
    return max(found, key=lambda held: held.round, default=None)


def newest_model(home: Path) -> HeldModel | None:
    """The newest model on the disk of the node in `home`, if it has one."""
    path = home / STATE_FILE
    if not path.exists() and not (home / KEY_FILE).exists():
        raise PlexusError(f"{home}: neither a run with a model, nor a peer's home, nor a fleet")
    state = _state_in(home)
    if not state.model_file:
        return None
    return HeldModel(state.round, state.ordinal, _read_model(home, state).data, home)


def taken_home(home: Path, model: memoryview, about: Mapping[str, str]) -> list[bytes | memoryview]:
    """A model as its owner takes it home: whole, and saying what it is; `home` is that of the node. In parts,
    without a copy of it."""
    files = [path for path in (home / REST_FILE, home / LOCAL_FILE) if path.exists()]
    with named(home / REST_FILE):
        parts = [path.read_bytes() for path in files]
        facts = metadata_of(home / REST_FILE)
    if (names := facts.pop(NAMES, None)) is not None:
        model = memoryview(with_names(model, names))
    return parts_of({**facts, **about}, *parts, model)


def with_names(model: memoryview, names: str) -> bytes:
    """A model that travelled without the names of its tensors, as safetensors of float32 that have them."""
    parts = ModelLayout(model).named(model)
    values = unpacked(parts)
    found, at, begun = dict[str, Any](), 0, dict.fromkeys(KEPT, 0)
    for name, shape, dtype, *said in json.loads(names):
        size, is_float = int(np.prod(shape, dtype=np.int64)), "float" in dtype
        own: Any = values[at : at + size]
        part = said[0] if said else None if is_float else WHOLE  # earlier versions did not say
        if part in parts:
            own, begun[part] = parts[part][begun[part] :][:size], begun[part] + size
        if not is_float:
            own = np.rint(own).astype(np.bool_ if dtype == "torch.bool" else np.int64)
        found[name] = own.reshape(shape)
        at += size
    return bytes(save(found))


class SessionStanding(Struct, frozen=True, kw_only=True):
    """Of a session, as a peer knows it."""

    session: str | None
    """None if no peer was started here and the session's file is elsewhere."""
    round: int
    """Of the newest model that the peer holds."""
    course: Course
    ended: bool
    final_model: str | None
    best_model: str | None
    best_round: int | None
    best_value: float | None

    @property
    def sentence(self) -> str:
        if self.session is None:
            return "no session was started here yet"
        lines = [f"session {self.session}: round {self.round}" + self._aim]
        if self.ended:
            model = self.final_model or "not here yet: start the peer, and it gets it from the others"
            lines = [f"session {self.session}: ended with round {self.round}", f"final model: {model}"]
        if self.best_model is not None:
            measured = f"measured {self.best_value:g} after round {self.best_round}"
            lines.append(f"best model that this peer measured: {self.best_model} ({measured})")
        return "\n".join(lines)

    @property
    def _aim(self) -> str:
        course = self.course
        ends = [f"round {course.rounds}"] if course.rounds else []
        ends += [course.until] if course.until else []
        ends += [f"{course.patience} rounds without a better model"] if course.patience else []
        waits = not self.round and (course.start_with or 1) > 1
        begins = f"; it begins when {course.start_with} nodes are there" if waits else ""
        return begins + (f"; it ends with {' or '.join(ends)}" if ends else "; it has no end")


def standing(home: Path) -> SessionStanding:
    """What the peer in `home` knows of its session."""
    from plexus.spec.experiment import load_spec

    if not (home / KEY_FILE).exists():
        raise PlexusError(f"{home}: not a peer's home")
    state = _state_in(home)
    name, course = None, ENDLESS
    files = (home / RUN_FOLDER / SPEC, home / SESSION_FILE)
    if agreed := next(filter(Path.exists, files), None):
        spec = load_spec(agreed)
        name = spec.name
        if spec.protocol.name == "plexus":
            course = spec.session.live(spec.nodes, spec.protocol.parameters.sample_size)
    best, final = home / BEST_MODEL, home / FINAL_MODEL
    about = metadata_of(best) if best.exists() else {}
    return SessionStanding(
        session=name,
        round=state.ordinal,
        course=course,
        ended=bool(state.ended),
        final_model=str(final) if state.ended and final.exists() else None,
        best_model=str(best) if about else None,
        best_round=int(about["round"]) if about else None,
        best_value=float(about["value"]) if about else None,
    )


def encode_state(state: State) -> bytes:
    body = msgspec.msgpack.encode(state)
    return HEAD + _digest(body) + body


def read_state(path: Path) -> State:
    """What `encode_state` wrote, if it is unharmed."""
    data = read_bytes(path)
    digest, body = data[len(HEAD) :][:DIGEST_BYTES], data[len(HEAD) + DIGEST_BYTES :]
    if not data.startswith(HEAD):
        raise PlexusError(f"{path}: damaged, or of another version of Plexus; {REMEDY}")
    if digest != _digest(body):
        raise PlexusError(f"{path}: damaged; {REMEDY}")
    return msgspec.msgpack.decode(body, type=State)


def _state_in(home: Path, session: bytes = b"") -> State:
    return read_state(home / STATE_FILE) if (home / STATE_FILE).exists() else State(session=session)


def _read_model(home: Path, state: State, room: Room = BOUNDLESS) -> LiveModel:
    path = home / state.model_file
    try:
        with path.open("rb", buffering=0) as file:
            data = room.space(path.stat().st_size)
            left = data
            while left and (count := file.readinto(left)):
                left = left[count:]
    except OSError as error:
        raise PlexusError(f"{path}: {error.strerror}; {REMEDY}") from None
    if not fits(state.model_seal, data):
        raise PlexusError(f"{path}: damaged: not the model that was written; {REMEDY}")
    return LiveModel(data, state.model_seal)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES, person=b"plexus state").digest()
