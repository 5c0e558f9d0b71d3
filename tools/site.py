"""What the documentation site adds to docs/ when mkdocs builds it: a hook, see mkdocs.yml.

- The page of commands, made from the commands themselves.
- Pages and files of the repository outside docs/ that pages link to: Markdown becomes a page below
  `project/`, anything else is copied below `files/`. Links to them are turned around.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from command_reference import page as commands_page  # beside this file
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)]*)?\))")
CODE = re.compile(r"```.*?```", re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add what pages refer to, and what those refer to."""
    files.append(File.generated(config, "commands.md", content=commands_page()))
    waiting = [entry.src_uri for entry in files if entry.src_uri.endswith(".md")]
    waiting += [uri for uri in _targets(config["nav"]) if uri.startswith("project/")]
    seen: set[str] = set()
    while waiting:
        uri = waiting.pop()
        if uri in seen or uri == "commands.md":
            continue
        seen.add(uri)
        if files.get_file_from_path(uri) is None:
            if not _source_of(uri).is_file():
                continue  # mkdocs says so where it finds the link
            files.append(File.generated(config, uri, abs_src_path=str(_source_of(uri))))
        if uri.endswith(".md"):
            text = CODE.sub("", _source_of(uri).read_text(encoding="utf-8"))
            waiting += [target for _, link, _ in LINK.findall(text) if (target := _uri(uri, link))]
    return files


def _targets(nav: list[Any]) -> list[str]:
    found = []
    for entry in nav:
        ((_, target),) = entry.items()
        found += _targets(target) if isinstance(target, list) else [target]
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of docs/, and from there back in, lead to where things are on the site."""
    here = page.file.src_uri
    if here == "commands.md":
        return markdown

    def turned(match: re.Match[str]) -> str:
        target = _uri(here, match[2])
        if target is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}{match[3]}"

    pieces, at = [], 0
    for code in CODE.finditer(markdown):
        pieces += [LINK.sub(turned, markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*pieces, LINK.sub(turned, markdown[at:])])


def _source_of(uri: str) -> Path:
    """The file of the repository that stands at `uri` on the site."""
    first, _, rest = uri.partition("/")
    return ROOT / rest if first in ("project", "files") else ROOT / "docs" / uri


def _uri(page: str, link: str) -> str | None:
    """Where on the site a link of a page leads; None if that is not in the repository."""
    if re.match(r"[a-z]+:", link):
        return None
    source = Path(os.path.normpath(_source_of(page).parent / link))
    if not source.is_relative_to(ROOT) or not source.exists():
        return None
    if source.is_dir():
        source = source / "README.md"
    path = PurePosixPath(source.relative_to(ROOT))
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    return f"project/{path}" if path.suffix == ".md" else f"files/{path}"
