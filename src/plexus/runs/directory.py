"""The run directory: everything one run leaves behind, valid at every moment of its making.

`docs/run-directory.md` describes it for readers. Small files are replaced atomically, tables are only
appended to, and a directory belongs to one running process at a time.
"""

from __future__ import annotations

import io
import itertools
import os
import platform
import shutil
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from plexus import __version__
from plexus.errors import PlexusError
from plexus.files import lock_directory, named, replacing, sync, write_json, write_text
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL
from plexus.runs.recorder import Recorder
from plexus.runs.result import Result
from plexus.runs.run import LIVE, RESULT, SPEC, VERSIONS, spec_digest_of, versions_of
from plexus.runs.tables import TABLES
from plexus.runs.tensorboard import delete_events

FIGURE = "learning-curve.png"
CHECKPOINT, CHECKPOINT_FOLDER = "checkpoint.json", "checkpoint-"
REPLAY = f"{CHECKPOINT_FOLDER}replay"
"""Tables of a resumed run until it has come to its checkpoint, of a forced one until it has begun."""
_OUTCOME = (RESULT, FIGURE, FINAL_MODEL, BEST_MODEL)
_TABLE_FILES = tuple(f"{table}.csv" for table in TABLES)
_UNMARKED = {f".{VERSIONS}.new", REPLAY}
"""What a run that was killed while it marked its directory may leave in it."""
_PACKAGES = ("click", "matplotlib", "msgspec", "numpy", "rich", "safetensors", "torch")


class RunDirectory:
    """The directory of a run under way, open for writing. Use it in a `with` statement."""

    def __init__(
        self,
        path: Path,
        spec_toml: str,
        spec_digest: str,
        *,
        base_dir: Path = Path(),
        resume: bool = False,
        replay: bool = False,
        force: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the directory, which must not hold a run yet (see `claim`), or go on with the run there.

        A run that is resumed writes its tables anew; one that replays does it beside those that are there,
        until it has `caught_up`. With `force` a run that is there is replaced when this one has `begun`.
        `base_dir` is what paths in the spec start from; `about` is added to the versions.
        """
        self.path = path
        self._is_resumed = resume
        more = {"spec_dir": str(base_dir.resolve()), **(about or {})}
        self._mark = partial(_mark, path, spec_toml, spec_digest, more)
        with named(path):
            self._is_made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_directory(path)
        self._replaces = force and not resume and (path / VERSIONS).exists()
        self._is_beside = replay or self._replaces
        if resume or self._replaces:
            shutil.rmtree(path / REPLAY, ignore_errors=True)  # of one that was killed
            if not self._is_beside:
                self._forget(*_TABLE_FILES)
        elif (path / VERSIONS).exists():
            os.close(self._lock)
            raise PlexusError(f"{path}: already holds a run")
        else:
            self._mark()
        if self._is_beside:
            with named(path):
                (path / REPLAY).mkdir()
        self.recorder = Recorder(path / REPLAY if self._is_beside else path)

    def begun(self) -> None:
        """Nothing is wrong with this run: what it replaces is deleted only now."""
        if self._replaces:
            with named(self.path):
                _delete_run(self.path, keep=REPLAY)
            self._mark()
            self.caught_up()

    def caught_up(self) -> None:
        """All that was recorded before is recorded again: let that take its place."""
        with named(self.path):
            written = self.recorder.move_to(self.path)
            self._forget(*(name for name in _TABLE_FILES if name not in written))
            (self.path / REPLAY).rmdir()
        self._is_beside = False

    def _forget(self, *tables: str) -> None:
        """Delete tables, and what is no longer true when a run goes on."""
        for name in (*_OUTCOME, *tables):
            (self.path / name).unlink(missing_ok=True)

    def finish(self, result: Result) -> None:
        """Write the outcome. A run that came to its end has no more use for checkpoints."""
        self.recorder.flush()
        write_json(self.path / RESULT, result)
        if not result.interrupted:
            remove_checkpoints(self.path)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Keep what was recorded, however the run ended; a run that failed to begin leaves nothing."""
        try:
            self.recorder.flush()
            if self._is_beside:  # what was there before says more
                shutil.rmtree(self.path / REPLAY, ignore_errors=True)
            elif kind is not None and not self._is_resumed and not _has_results(self.path):
                _delete_run(self.path)
                if self._is_made:
                    with suppress(OSError):  # somebody else's file is in it
                        self.path.rmdir()
        finally:
            os.close(self._lock)


def go_on(
    path: Path, spec_toml: str, spec_digest: str, most_bytes: int, about: Mapping[str, Any]
) -> Recorder:
    """The recorder of a run that one process after the other goes on with, for as long as it likes: a peer's.

    Its tables stay below `most_bytes` each.
    """
    if not (path / SPEC).exists():
        with named(path):
            path.mkdir(exist_ok=True)
        _mark(path, spec_toml, spec_digest, about)
    return Recorder(path, go_on=True, most_bytes=most_bytes)


def live(homes: Sequence[str], **more: str) -> dict[str, Any]:
    """What the versions of a run of live peers add: their homes, as seen from it, and when it was started."""
    return {"kind": LIVE, "homes": list(homes), "started_s": round(time.time(), 3), **more}


def _mark(path: Path, spec_toml: str, spec_digest: str, about: Mapping[str, Any]) -> None:
    """The versions first: they mark the directory as a run's."""
    write_json(path / VERSIONS, {"spec_digest": spec_digest, **versions(), **about})
    write_text(path / SPEC, spec_toml)


def claim(path: Path, spec_digest: str, *, force: bool = False) -> Path | None:
    """Make room for a run in `path` without losing anything unasked.

    An earlier run of the same spec is moved to `path.1`, `path.2`, …, which is returned; one that
    recorded nothing yet is deleted. A run of another spec is refused. With `force` an earlier run of any
    spec stays until the new one has begun. What is not a run directory is never touched.
    """
    with named(path):
        if not path.exists() or (path.is_dir() and {each.name for each in path.iterdir()} <= _UNMARKED):
            return None
        if not (path / VERSIONS).exists():
            raise PlexusError(f"{path}: exists and is not a run directory; choose another with --out")
        os.close(lock_directory(path))
        if not force and spec_digest_of(path) != spec_digest:
            remedy = "choose another directory with --out, or replace that run with --force"
            raise PlexusError(f"{path}: holds a run of another spec; {remedy}")
        if force:
            return None
        if not _has_results(path):
            _delete_run(path)
            return None
        places = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
        return path.rename(next(place for place in places if not place.exists()))


def remove(path: Path) -> bool:
    """Delete a run that nobody is writing. Whether its directory is gone too: what else is in it stays."""
    versions_of(path)
    clear(path)
    with suppress(OSError):
        path.rmdir()
    return not path.exists()


def clear(path: Path) -> None:
    """Delete the run in `path`, whatever it is, if there is one that nobody is writing."""
    claim(path, "", force=True)
    if (path / VERSIONS).exists():
        with named(path):
            _delete_run(path)


def archive(path: Path, folder: Path) -> Path:
    """Pack the directory of a run into `folder`/NAME.tar.gz, and delete it when that is written."""
    versions_of(path)
    path = path.resolve()  # what a link leads to, not the link
    packed = folder / f"{path.name}.tar.gz"
    if packed.resolve().is_relative_to(path):  # it would be deleted with the run
        raise PlexusError(f"{packed}: is in the run itself; choose another folder with --to")
    if packed.exists():
        raise PlexusError(f"{packed}: is there already; choose another folder with --to")
    lock = lock_directory(path)
    try:
        with named(packed):
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(packed) as partial:
                with tarfile.open(partial, "w:gz") as file:
                    file.add(path, packed.name.removesuffix(".tar.gz"))
                sync(partial)
            shutil.rmtree(path)
    finally:
        os.close(lock)
    return packed


def packed(path: Path) -> bytes:
    """A run directory as bytes, to travel. Its mark is first, and what says how far it is last: whoever is
    killed while unpacking leaves a run that is begun anew, not one that is broken."""
    files = [file for file in path.rglob("*") if file.is_file()]
    places = {VERSIONS: 0, CHECKPOINT: 2, RESULT: 3}
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for file in sorted(files, key=lambda file: (places.get(file.name, 1), file)):
            tar.add(file, str(file.relative_to(path)))
    return held.getvalue()


def unpack(data: bytes, path: Path) -> None:
    """Write what was packed into a directory that holds no run."""
    with named(path), tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(path, filter="data")


def _has_results(path: Path) -> bool:
    return any((path / name).exists() for name in (RESULT, *_TABLE_FILES))


def _delete_run(path: Path, keep: str | None = None) -> None:
    """Delete what a run writes, but for the folder `keep`, and nothing that somebody else put there."""
    delete_events(path)
    (path / CHECKPOINT).unlink(missing_ok=True)
    remove_checkpoints(path, keep)
    for name in (*_OUTCOME, *_TABLE_FILES, SPEC, VERSIONS):  # its mark last
        (path / name).unlink(missing_ok=True)


def remove_checkpoints(path: Path, keep: str | None = None) -> None:
    """Delete the checkpoints in a run directory, but for the folder `keep`."""
    if keep is None:
        (path / CHECKPOINT).unlink(missing_ok=True)
    for folder in path.glob(f"{CHECKPOINT_FOLDER}*"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)


def versions() -> dict[str, Any]:
    packages = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "plexus": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": packages,
    }
