"""A session's authority and nodes for tests, without any command line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from plexus.live.admission import CERTIFICATE_FILE, KEY_FILE, Admission
from plexus.live.authority import Authority
from plexus.live.identity import create_key, raw_public
from plexus.live.session import Session, found_session

SPEC = {"name": "test", "seed": 1, "nodes": 4, "protocol": {"name": "plexus"}, "task": {}}


class Party:
    """One session and homes for its nodes under `directory`."""

    def __init__(self, directory: Path, name: str = "test") -> None:
        self.directory = directory
        self.session: Session = found_session(directory / "session", {**SPEC, "name": name})
        self.authority = Authority.load(directory / "session")

    def home(self, name: str, valid: timedelta = timedelta(days=1), digest: bytes = b"") -> Path:
        """A node's home with key and certificate."""
        home = self.directory / name
        home.mkdir()
        public = raw_public(create_key(home / KEY_FILE).public_key())
        text = self.authority.invite(public, digest or self.session.digest, valid)
        (home / CERTIFICATE_FILE).write_text(text)
        return home

    def admission(self, name: str) -> Admission:
        return Admission(self.home(name), self.session)
