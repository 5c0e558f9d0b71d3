"""Functions of one screen, files of a few: the limits beyond which a thing is to be cut in two."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import plexus

SOURCE = Path(plexus.__file__).parent
LINES_PER_FUNCTION = 70
LINES_PER_FILE = 400


def too_long(source: Path) -> list[str]:
    wrong = []
    for file in sorted(source.rglob("*.py")):
        text = file.read_text()
        path = file.relative_to(source).as_posix()
        lines = len(text.splitlines())
        if lines > LINES_PER_FILE:
            wrong.append(f"{path} has {lines} lines, at most {LINES_PER_FILE} are allowed")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LINES_PER_FUNCTION:
                    wrong.append(
                        f"{path}:{node.lineno} {node.name} has {lines} lines, "
                        f"at most {LINES_PER_FUNCTION} are allowed"
                    )
    return wrong


def test_nothing_is_too_long() -> None:
    assert too_long(SOURCE) == []


@pytest.mark.parametrize(
    ("lines_in_function", "lines_beside", "complaints"),
    [(69, 0, 0), (70, 0, 1), (10, 389, 0), (10, 390, 1), (100, 400, 2)],
)
def test_what_is_too_long_is_found(
    lines_in_function: int, lines_beside: int, complaints: int, tmp_path: Path
) -> None:
    function = ["def f():", *["    pass"] * lines_in_function]
    (tmp_path / "x.py").write_text("\n".join(function + ["pass"] * lines_beside) + "\n")
    assert len(too_long(tmp_path)) == complaints
