"""The repository keeps its shape: who may import whom, and what stays out of where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import plexus

SOURCE = Path(plexus.__file__).parent

# Small modules without a place in the picture, which everything but the protocol may use.
LEAVES = {"__version__", "datadir", "errors", "lazy", "rng", "toml"}

MAY_IMPORT: dict[str, set[str]] = {
    "protocol": {"protocol"},
    "sim": {"sim", "protocol", "traces", "metrics", "errors", "lazy", "rng"},
    "live": {"live", "protocol", "traces", "metrics", "spec"} | LEAVES,
    "traces": {"traces", "datadir", "errors", "lazy", "rng"},
    "learn": {"learn", "metrics", "datadir", "errors", "lazy", "rng"},
    "metrics": {"metrics", "errors", "rng", "__version__"},
    "report": {"report", "metrics", "errors", "toml"},
    "data": {"data", "traces"} | LEAVES,
    "studies": {
        "studies",
        "report",
        "metrics",
        "sim",
        "learn",
        "protocol",
        "spec",
        "spec_check",
        "session",
        "stopping",
        "progress",
    }
    | LEAVES,
    "dashboard": {"dashboard", "live", "metrics", "errors"},
    **dict.fromkeys(LEAVES, LEAVES),
}
"""What a package may import of ours. The other modules of the top wire all of it together."""

PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "heapq",
    "itertools", "math", "operator", "random", "struct", "typing", "msgspec", "numpy",
}  # fmt: skip
"""All that the protocol may import of others: no clock, no socket, no thread, no file, no log."""

READS_THE_CLOCK = {
    "dashboard", "live", "metrics",
    "bench.py", "checkpoint.py", "cli.py", "progress.py", "session.py", "storm.py", "worker.py",
    "studies/display.py",
    "data/download.py",  # pauses before it tries again
    "traces/commands.py", "learn/bench.py", "learn/graph.py",  # say what training cost, not what it gave
}  # fmt: skip
"""Packages and files that may ask for the time of day or how long something took."""

GENERATORS = {"Generator", "PCG64", "SeedSequence", "default_rng"}


class Import(NamedTuple):
    path: str
    line: int
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module} {self.name}".rstrip()


def trees(source: Path) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(source.rglob("*.py")):
        yield file.relative_to(source).as_posix(), ast.parse(file.read_text())


def imports(source: Path) -> list[Import]:
    found = []
    for path, tree in trees(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [Import(path, node.lineno, alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
                names = [alias.name for alias in node.names]
                found += [Import(path, node.lineno, node.module or "", name) for name in names]
    return found


def package_of(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


def ours(found: Import) -> str | None:
    """Which package or module of ours is imported, if it is one of ours.

    `import plexus` alone is good for nothing but the version.
    """
    top, _, rest = found.module.partition(".")
    if top != "plexus":
        return None
    return rest.split(".")[0] or found.name or "__version__"


def wrong_directions(source: Path) -> list[str]:
    return [
        str(found)
        for found in imports(source)
        if (target := ours(found)) is not None
        and target not in MAY_IMPORT.get(package_of(found.path), {target})
    ]


def misplaced(source: Path) -> list[str]:
    """torch outside learn, asyncio outside live, clocks where results must not depend on them."""
    wrong = []
    for found in imports(source):
        package, module = package_of(found.path), found.module.split(".")[0]
        if module == "torch" and package not in ("learn", "worker"):
            wrong.append(str(found))
        if module == "asyncio" and package != "live":
            wrong.append(str(found))
        if module in ("time", "datetime") and not {package, found.path} & READS_THE_CLOCK:
            wrong.append(str(found))
        if module == "random" and found.name != "Random":
            wrong.append(str(found))
        if package == "protocol" and module not in PURE | {"plexus"}:
            wrong.append(str(found))
    return wrong


def impurities(source: Path) -> list[str]:
    """Numpy's global random numbers anywhere; input and output in the protocol."""
    wrong = []
    for path, tree in trees(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("np.random."):
                if ast.unparse(node).split(".")[2] not in GENERATORS:
                    wrong.append(f"{path}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "np.random.default_rng" and not node.args:
                    wrong.append(f"{path}:{node.lineno} draws a seed nobody knows")
                if package_of(path) == "protocol" and called in ("open", "print", "input"):
                    wrong.append(f"{path}:{node.lineno} {called}")
    return wrong


@pytest.mark.parametrize("check", [wrong_directions, misplaced, impurities])
def test_the_source_is_in_shape(check: object) -> None:
    assert check(SOURCE) == []  # type: ignore[operator]


def test_every_package_has_a_place_in_the_picture() -> None:
    packages = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    assert packages <= set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("path", "code", "check"),
    [
        ("protocol/x.py", "from plexus.rng import stream", wrong_directions),
        ("protocol/x.py", "from plexus import rng", wrong_directions),
        ("protocol/x.py", "import plexus.sim.kernel", wrong_directions),
        ("sim/x.py", "from plexus.learn.graph import LazyModels", wrong_directions),
        ("learn/x.py", "def f():\n    from plexus.sim import kernel", wrong_directions),
        ("learn/x.py", "from plexus.protocol import api", wrong_directions),
        ("traces/x.py", "from plexus.metrics import store", wrong_directions),
        ("report/x.py", "from plexus.sim import kernel", wrong_directions),
        ("errors.py", "from plexus.spec import ExperimentSpec", wrong_directions),
        ("sim/x.py", "import torch.nn", misplaced),
        ("cli.py", "import torch", misplaced),
        ("sim/x.py", "import asyncio", misplaced),
        ("sim/x.py", "from time import monotonic", misplaced),
        ("learn/trainer.py", "import time", misplaced),
        ("sim/x.py", "import random", misplaced),
        ("protocol/x.py", "from random import random", misplaced),
        ("protocol/x.py", "import logging", misplaced),
        ("protocol/x.py", "import os", misplaced),
        ("traces/x.py", "np.random.seed(1)", impurities),
        ("traces/x.py", "np.random.default_rng()", impurities),
        ("protocol/x.py", "print(1)", impurities),
    ],
)
def test_what_is_out_of_shape_is_found(path: str, code: str, check: object, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(code)
    assert len(check(tmp_path)) == 1  # type: ignore[operator]
