"""What survives a crash: counter, newest model, round, view and addresses, written atomically.

The counter is on the disk before anybody hears of it, so it is never used twice. A model is written in
the background, the newest one only: after a crash the node may hold a model some rounds old, as if it had
crashed a little earlier.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.live.admission import KEY_FILE
from plexus.live.models import LiveModel
from plexus.live.seals import fits
from plexus.metrics.files import named, write_bytes

STATE_FILE = "state.bin"
MODEL_SUFFIX = ".safetensors"
FORMAT = 1


class State(Struct, frozen=True, kw_only=True):
    """The contents of the state file."""

    format: int = FORMAT
    session: bytes
    counter: int = 0
    round: int = 0
    model_file: str = ""
    """Beside the state file; empty if the node holds none but the initial model."""
    model_seal: bytes = b""
    view: bytes = b""
    """As a frame of the protocol."""
    bandwidth_bytes_per_s: int = 0


class Store:
    """One node's state on disk."""

    def __init__(
        self, home: Path, session: bytes, on_error: Callable[[BaseException], None]
    ) -> None:
        self._home = home
        self._on_error = on_error
        self.state = self._read(session)
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._pending: tuple[int, LiveModel, bytes] | None = None
        self._is_writing = False
        """A thread looks at `_pending` again before it ends. Both are changed under the lock."""

    def model(self) -> LiveModel | None:
        """The model held before the crash or stop."""
        if not self.state.model_file:
            return None
        path = self._home / self.state.model_file
        with named(path):
            data = path.read_bytes()
        if not fits(self.state.model_seal, data):
            raise PlexusError(f"{path}: damaged: not the model that {STATE_FILE} speaks of")
        return LiveModel(memoryview(data), self.state.model_seal)

    def save_counter(self, counter: int, view: bytes, bandwidth_bytes_per_s: int) -> None:
        """On the disk when this returns."""
        self._update(counter=counter, view=view, bandwidth_bytes_per_s=bandwidth_bytes_per_s)

    def save_model(self, round: int, model: LiveModel, view: bytes) -> None:
        """On the disk soon, unless a newer one overtakes it."""
        with self._lock:
            self._pending = round, model, view
            if self._is_writing:
                return
            self._is_writing = True
        self._thread.submit(self._write_models)

    def close(self) -> None:
        """Wait until everything is written."""
        self._thread.shutdown(wait=True)

    def _write_models(self) -> None:
        while (newest := self._next()) is not None:
            try:
                self._write_model(*newest)
            except PlexusError as error:
                self._on_error(error)

    def _next(self) -> tuple[int, LiveModel, bytes] | None:
        with self._lock:
            newest, self._pending = self._pending, None
            self._is_writing = newest is not None
            return newest

    def _write_model(self, round: int, model: LiveModel, view: bytes) -> None:
        name = f"model-{round}{MODEL_SUFFIX}"
        old = self.state.model_file
        write_bytes(self._home / name, model.data)
        self._update(round=round, model_file=name, model_seal=model.seal, view=view)
        if old and old != name:
            with named(self._home / old):
                (self._home / old).unlink(missing_ok=True)

    def _update(self, **changes: object) -> None:
        with self._lock:
            changed = msgspec.structs.replace(self.state, **changes)
            write_bytes(self._home / STATE_FILE, msgspec.msgpack.encode(changed))
            self.state = changed

    def _read(self, session: bytes) -> State:
        path = self._home / STATE_FILE
        if not path.exists():
            return State(session=session)
        with named(path):
            data = path.read_bytes()
        state = _decode(path, data)
        if state.session != session:
            raise PlexusError(f"{path}: of another session; use another --home for this one")
        return state


def newest_model(home: Path) -> tuple[int, Path]:
    """Round and file of the newest model on the disk of the node in `home`."""
    path = home / STATE_FILE
    if not path.exists() and not (home / KEY_FILE).exists():
        inside = next((each.parent for each in sorted(home.glob(f"*/{STATE_FILE}"))), None)
        example = inside or "runs/fleet-NAME/node-00"
        raise PlexusError(f"{home}: no peer's home; give one with --home, e.g. {example}")
    with named(path):
        state = _decode(path, path.read_bytes()) if path.exists() else State(session=b"")
    if not state.model_file:
        raise PlexusError(f"{home}: this node holds no model but the initial one yet")
    return state.round, home / state.model_file


def _decode(path: Path, data: bytes) -> State:
    try:
        return msgspec.msgpack.decode(data, type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlexusError(f"{path}: damaged: {error}") from None
