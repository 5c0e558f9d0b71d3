"""Functions of one screen, files of a few, one name for one thing: limits that keep the house in order.

Those of duplicates and small files are ratchets: they may be lowered, and are not to be raised.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import plexus

SOURCE = Path(plexus.__file__).parent
LINES_PER_FUNCTION = 70
LINES_PER_FILE = 400
FILES, LINES = 245, 42_916
MODULES_AT_THE_TOP = 12
TWICE_NAMED_CLASSES, TWICE_NAMED_FILES = 8, 24
SMALL_LINES, SMALL_FILES = 40, 12
"""A file of fewer lines is rather a part of the one that uses it; an `__init__.py` is what it is."""


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


def files(source: Path) -> list[Path]:
    return [each for each in sorted(source.rglob("*.py")) if "experiments" not in each.parts]


def twice(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def classes(source: Path) -> list[str]:
    """Of modules, not those inside functions; private names are seen by one file alone."""
    return [
        node.name
        for file in files(source)
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def small(source: Path) -> list[str]:
    named = [each for each in files(source) if not each.name.startswith("__")]
    return [each.name for each in named if len(each.read_text().splitlines()) < SMALL_LINES]


def test_the_source_does_not_grow() -> None:
    found = files(SOURCE)
    assert len(found) <= FILES
    assert sum(len(each.read_text().splitlines()) for each in found) <= LINES
    assert len([each for each in found if each.parent == SOURCE]) <= MODULES_AT_THE_TOP


def test_one_name_for_one_thing() -> None:
    assert len(twice(classes(SOURCE))) <= TWICE_NAMED_CLASSES, twice(classes(SOURCE))
    names = twice([each.name for each in files(SOURCE) if not each.name.startswith("__")])
    assert len(names) <= TWICE_NAMED_FILES, names


def test_few_files_are_small() -> None:
    assert len(small(SOURCE)) <= SMALL_FILES, small(SOURCE)


def test_duplicates_and_small_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A: ...\nclass _B: ...\n")
    (tmp_path / "b.py").write_text("class A: ...\nclass _B: ...\n" + "pass\n" * SMALL_LINES)
    assert twice(classes(tmp_path)) == ["A"]
    assert small(tmp_path) == ["a.py"]


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
