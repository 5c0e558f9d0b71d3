"""The commands that pages show: blocks fenced as `console`, and what is said of those that cannot run.

`<!-- not run: the reason -->` or `<!-- file: the name to save it under -->` stands above a block.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "results" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_FENCE = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^\n]+?)|file: (?P<file>\S+)) -->\n)?"
    r"```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_INLINE = re.compile(r"`(plexus [a-z][^`]*)`")
SHELL = ("console", "bash", "sh")


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    reason: str | None
    """Why it is not run, if it is not."""
    file: str | None
    """The name under which the reader is told to save it, if so."""
    text: str
    commands: list[str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = path.read_text(encoding="utf-8")
    page = path.relative_to(ROOT).as_posix()
    return [
        Block(
            page,
            text[: found.start("body")].count("\n"),
            found["language"],
            found["reason"],
            found["file"],
            found["body"],
            _commands(found["body"]),
        )
        for found in _FENCE.finditer(text)
    ]


def _commands(body: str) -> list[str]:
    """Line by line; without prompts, and without comments that stand after a command."""
    whole = body.replace("\\\n", " ")
    lines = (re.sub(r"^\$ |(^|\s{2,})# .*$", "", line).strip() for line in whole.splitlines())
    return [line for line in lines if line]


def inline(path: Path) -> list[str]:
    """Commands within sentences and tables."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    return _INLINE.findall(text)
