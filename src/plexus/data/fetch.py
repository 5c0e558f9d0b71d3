"""Fetch a data set: download, check, put in place; what is here already stays."""

from __future__ import annotations

from pathlib import Path

from plexus.data.archives import extract
from plexus.data.download import Progress, UnreachableError, download
from plexus.data.registry import Dataset, File
from plexus.data.store import (
    WrongContentError,
    matches,
    path_of,
    room_for,
    state_of,
    verify,
    writing_to,
)
from plexus.errors import PlexusError
from plexus.traces.readers.datadir import data_directory


def fetch(
    dataset: Dataset,
    progress: Progress,
    *,
    mirror: str | None = None,
    force: bool = False,
    pause_s: float = 1.0,
) -> bool:
    """Bring a data set here; False if it was here already. `mirror` replaces the official address."""
    if _all_here(dataset, force):
        return False
    if not dataset.fetchable and mirror is None:
        raise PlexusError(
            f"{dataset.name} cannot be fetched, no address is known: {by_hand(dataset)}"
        )
    try:
        if dataset.archive is not None:
            _fetch_archive(dataset, mirror or dataset.archive.url, progress, pause_s)
        else:
            for file in dataset.files:
                if state_of(file) != "here":
                    _fetch_file(file, _address(file, dataset, mirror), progress, pause_s)
    except UnreachableError as error:
        raise PlexusError(f"{error}; without a network: {by_hand(dataset)}") from None
    return True


def by_hand(dataset: Dataset) -> str:
    """What to do where fetching is not possible."""
    command = f"`plexus data import {dataset.name} PATH`"
    if not dataset.fetchable:
        return f"it derives from {dataset.page}; whoever has the file runs {command}"
    archive = dataset.archive
    addresses = [archive.url] if archive else [file.url or "" for file in dataset.files]
    return f"get {' and '.join(addresses)} on any machine, then run {command}"


def _all_here(dataset: Dataset, force: bool) -> bool:
    states = [state_of(file) for file in dataset.files]
    for file, state in zip(dataset.files, states, strict=True):
        if state == "other" and not force:
            raise PlexusError(
                f"{path_of(file)} is there, but is not {dataset.name}: its checksum differs; move it away, "
                "or replace it with --force"
            )
    return all(state == "here" for state in states)


def _address(file: File, dataset: Dataset, mirror: str | None) -> str:
    if mirror is None:
        assert file.url is not None, "checked by fetchable"
        return file.url
    return mirror if len(dataset.files) == 1 else f"{mirror.rstrip('/')}/{Path(file.path).name}"


def _fetch_file(file: File, url: str, progress: Progress, pause_s: float) -> None:
    part = path_of(file).with_name(f".{Path(file.path).name}.part")
    resumed = part.exists() and part.stat().st_size > 0
    download(url, part, file.size, progress, pause_s)
    if resumed and not matches(file, part):
        part.unlink()  # the earlier beginning was of another file: once more, from the start
        download(url, part, file.size, progress, pause_s)
    try:
        verify(file, part, url)
    except WrongContentError:
        part.unlink()
        raise
    with writing_to(path_of(file)):
        part.replace(path_of(file))


def _fetch_archive(dataset: Dataset, url: str, progress: Progress, pause_s: float) -> None:
    assert dataset.archive is not None
    part = data_directory() / f".{dataset.name}.part"
    room_for(dataset.archive.size + dataset.size, part.parent, dataset.name)
    download(url, part, None, progress, pause_s)
    try:
        extract(part, dataset)
    except WrongContentError:
        part.unlink()  # else the next attempt would go on from it
        raise
    part.unlink()
