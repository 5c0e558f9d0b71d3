"""The documentation site: builds strictly, has no broken link, and needs no network to be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.cli.test_manners import COMMANDS
from tools.command_reference import page

ROOT = Path(__file__).parents[2]
NAVIGATION = ("canonical", "next", "prev")
"""Kinds of <link> that load nothing."""


class Links(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.targets.append(found["href"])
        elif tag in ("img", "script", "iframe", "link") and found.get("rel") not in NAVIGATION:
            self.loaded += [found[name] for name in ("src", "href") if name in found]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_no_link_is_broken(site: Path) -> None:
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, links in pages.items():
        if path.name == "404.html":
            continue  # its links start from the root of a server
        for target in [*links.targets, *links.loaded]:
            name, _, anchor = unquote(target).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            other = (path.parent / name).resolve() if name else path
            if not other.exists() or (
                anchor and other in pages and anchor not in pages[other].ids | {"__tabbed"}
            ):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert broken == []
    assert {"index.html", "commands.html", "spec.html", "own-task.html"} <= {p.name for p in pages}


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = [
        f"{path.name}: {target}"
        for path in site.rglob("*.html")
        for target in Links(path.read_text()).loaded
        if re.match(r"(https?:)?//", target)
    ]
    assert loaded == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text())


def test_the_page_of_commands_has_every_command_and_option() -> None:
    text = page()
    for path, command in COMMANDS.items():
        if not hasattr(command, "commands"):
            section = text.partition(f"### plexus {path}\n")[2].partition("\n### ")[0]
            assert section, path
            for option in command.params:
                if option.param_type_name == "option" and not getattr(option, "hidden", False):
                    assert option.opts[0] in section
