"""Fetch a data set: download over HTTP, going on where an earlier attempt was cut off; check; put in place.

What is here already stays.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from plexus import __version__
from plexus.data.importing import extract, room_for, writing_to
from plexus.data.registry import Dataset, File, WrongContentError
from plexus.errors import PlexusError
from plexus.files import data_directory

ATTEMPTS = 5
"""So many in a row may bring nothing before we give up."""
PAUSE_S = 1.0
"""Before another attempt, for each that brought nothing."""
TIMEOUT_S = 30.0
CHUNK = 1 << 16
COMPLETE = 416
"""How a server says that there is nothing after what we have."""

Progress = Callable[[int], None]
"""Is told how many bytes there are."""
Response = http.client.HTTPResponse | urllib.error.HTTPError


class CutOffError(Exception):
    """The connection ended before the file did; its text says how."""


class UnreachableError(PlexusError):
    """No answer from the server at all."""


def fetch(dataset: Dataset, progress: Progress, *, mirror: str | None = None, force: bool = False) -> bool:
    """Bring a data set here; False if it was here already. `mirror` replaces the official address."""
    states = {file.place: file.state for file in dataset.files}
    for path, state in states.items():
        if state == "other" and not force:
            wrong = f"{path} is there, but is not {dataset.name}: its checksum differs"
            raise PlexusError(f"{wrong}; move it away, or replace it with --force")
    if set(states.values()) == {"here"}:
        return False
    if not dataset.fetchable and mirror is None:
        raise PlexusError(f"{dataset.name} cannot be fetched, no address is known: {by_hand(dataset)}")
    try:
        if dataset.archive is not None:
            room_for(dataset.archive.size + dataset.size, data_directory(), dataset.name)
            _fetch_archive(dataset, mirror or dataset.archive.url, progress)
        else:
            for file in dataset.files:
                if states[file.place] != "here":
                    _fetch_file(file, _address(file, dataset, mirror), progress)
    except UnreachableError as error:
        raise PlexusError(f"{error}; without a network: {by_hand(dataset)}") from None
    return True


def by_hand(dataset: Dataset) -> str:
    command = f"`plexus data import {dataset.name} PATH`"
    if not dataset.fetchable:
        return f"it derives from {dataset.page}; whoever has the file runs {command}"
    addresses = [each.url or "" for each in ([dataset.archive] if dataset.archive else dataset.files)]
    return f"get {' and '.join(addresses)} on any machine, then run {command}"


def _address(file: File, dataset: Dataset, mirror: str | None) -> str:
    if mirror is None:
        assert file.url is not None, "checked by fetchable"
        return file.url
    return mirror if len(dataset.files) == 1 else f"{mirror.rstrip('/')}/{file.place.name}"


def _fetch_file(file: File, url: str, progress: Progress) -> None:
    part = file.place.with_name(f".{file.place.name}.part")
    resumed = _size(part) > 0
    download(url, part, file.size, progress)
    if resumed and not file.matches(part):
        part.unlink()  # the earlier beginning was of another file: once more, from the start
        download(url, part, file.size, progress)
    try:
        file.verify(part, url)
    except WrongContentError:
        part.unlink()
        raise
    with writing_to(file.place):
        part.replace(file.place)


def _fetch_archive(dataset: Dataset, url: str, progress: Progress) -> None:
    part = data_directory() / f".{dataset.name}.part"
    download(url, part, None, progress)
    try:
        extract(part, dataset)
    except WrongContentError:
        part.unlink()  # else the next attempt would go on from it
        raise
    part.unlink()


def download(url: str, part: Path, size: int | None, progress: Progress) -> None:
    """Complete `part`, which may hold the beginning already, with what is behind `url`.

    `size` is how many bytes that must be; None takes the server's word. What was received stays in
    `part` when this fails, so that a later call goes on from there.
    """
    with writing_to(part):
        if size is not None:
            if _size(part) > size:
                part.unlink()  # it cannot be the beginning of this file
            room_for(size - _size(part), part.parent, url)
        fruitless = 0
        while _size(part) != size:
            have = _size(part)
            try:
                _continue(url, part, have, size, progress)
                break
            except CutOffError as cut:
                fruitless = 0 if _size(part) > have else fruitless + 1
                if fruitless == ATTEMPTS:
                    kept = f"{_size(part):,} bytes are kept: run it again to go on from there"
                    raise PlexusError(f"{url}: {cut}, {ATTEMPTS} times in a row; {kept}") from None
                time.sleep(PAUSE_S * fruitless)
        progress(_size(part))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _continue(url: str, part: Path, have: int, size: int | None, progress: Progress) -> None:
    """One request, from byte `have` on. Returns when the file is complete."""
    with _open(url, have) as response:
        if have and response.status == COMPLETE:
            return
        begins = (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-")
        if response.status != 206 or not begins:
            have = 0  # the server sends the whole file, perhaps again
        length = response.headers.get("Content-Length")
        total = size if length is None else have + int(length)
        if size is not None and total != size:
            raise PlexusError(f"{url}: has {total:,} bytes, not {size:,}: it is another file")
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(have)
            file.seek(have)
            while chunk := _read(response):
                file.write(chunk)
                have += len(chunk)
                progress(have)
    if total is not None and have < total:
        raise CutOffError(f"the connection ended after {have:,} of {total:,} bytes")


def _open(url: str, have: int) -> Response:
    headers = {"User-Agent": f"plexus/{__version__}", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        response: Response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        return response
    except urllib.error.HTTPError as error:
        if error.code == COMPLETE and error.headers.get("Content-Range") == f"bytes */{have}":
            return error  # nothing follows: we have it all
        error.close()
        if error.code >= 500 or error.code == 429:
            raise CutOffError(f"the server answers {error.code} {error.reason}") from None
        raise PlexusError(f"{url}: the server answers {error.code} {error.reason}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        why = getattr(error, "reason", error)
        raise UnreachableError(f"cannot reach {urlsplit(url).hostname} ({why})") from None
    except http.client.HTTPException as error:
        raise CutOffError(f"the server's answer makes no sense ({type(error).__name__})") from None


def _read(response: Response) -> bytes:
    try:
        return response.read(CHUNK)
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise CutOffError(f"the connection broke ({type(error).__name__})") from None
