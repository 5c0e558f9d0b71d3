"""A small HTTP server that can misbehave, and a data set to fetch from it."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from plexus.data.registry import Archive, Dataset, File

CONTENT = bytes(range(256)) * 1200
"""300 kB: many chunks."""


class Site:
    """What the server has, how it behaves, and what it was asked."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.cut_after: list[int] = []
        """Send so many bytes of the body of the next answers, then hang up."""
        self.statuses: list[int] = []
        """Answer the next requests with these errors."""
        self.knows_ranges = True
        self.says_length = True
        self.ranges: list[str | None] = []
        self.url = ""


@pytest.fixture
def site() -> Iterator[Site]:
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.ranges.append(self.headers.get("Range"))
            if state.statuses:
                self.send_error(state.statuses.pop(0))
                return
            first, total = self._first(), len(state.content)
            if first >= total:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{total}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = state.content[first:]
            self.send_response(206 if first else 200)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
            if state.says_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.cut_after.pop(0)] if state.cut_after else body)

        def _first(self) -> int:
            asked = self.headers.get("Range")
            return int(asked[6:-1]) if asked and state.knows_ranges else 0

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}/file"
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory."""
    home = tmp_path / "home"
    monkeypatch.setenv("PLEXUS_DATA", str(home))
    return home


@pytest.fixture
def plain(site: Site, data_home: Path) -> Dataset:
    """A data set of one file."""
    file = File("folder/thing", len(CONTENT), (sha256(CONTENT),), url=site.url)
    return Dataset("plain", "a thing", "none", "http://page", (file,))


MEMBERS = {"top/a.csv": b"a" * 5000, "top/b.csv": b"b" * 7000}


@pytest.fixture
def packed(site: Site, data_home: Path) -> Dataset:
    """A data set of two members of an archive."""
    files = tuple(
        File(f"packed/{name[4:]}", len(content), (sha256(content),), member=name)
        for name, content in MEMBERS.items()
    )
    return Dataset("packed", "two things", "none", "http://page", files, Archive(site.url, 20_000))


def as_tar(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def as_zip(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return target.getvalue()
