"""Which names of a package are about something: classes, functions and parameters, in its source."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


def names(folder: Path) -> Iterator[str]:
    """All public ones of a package, but for its tests."""
    for file in sorted(folder.rglob("*.py")):
        if "test" in file.name or "proto" in file.relative_to(folder).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            elif isinstance(node, ast.arg):
                yield node.arg


def main(package: str, words: dict[str, str]) -> None:
    found = find_spec(package)
    assert found is not None and found.submodule_search_locations
    public = sorted({name for name in names(Path(found.submodule_search_locations[0])) if name[0] != "_"})
    answers = {}
    for feature, pattern in words.items():
        hits = [name for name in public if re.search(pattern, name, re.IGNORECASE)]
        shown = ", ".join(f"`{name}`" for name in sorted(hits, key=len)[:3])
        answers[feature] = (
            {"answer": "not tried", "says": f"there are names such as {shown}"}
            if hits
            else {"answer": "not found", "says": f"none of its {len(public):,} public names is about it"}
        )
    sys.stdout.write(f"{json.dumps(answers)}\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
