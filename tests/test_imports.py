"""The house keeps its shape: who may import whom, also by way of others, and what stays out of where."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import plexus

SOURCE = Path(plexus.__file__).parent

LEAVES = {
    "__version__", "errors", "rng", "files", "quantities", "checked", "loading", "machine", "cluster", "style"
}  # fmt: skip
"""Small modules that everything but the protocol may use."""

MAY_IMPORT: dict[str, set[str]] = {
    "protocol": {"protocol"},
    "traces": {"traces"},
    "runs": {"runs"},
    "learn": {"learn", "runs"},
    "sim": {"sim", "protocol", "traces", "runs"},
    "storm": {"storm", "sim", "protocol", "traces", "runs"},
    "spec": {
        "spec",
        "protocol.registry",
        "protocol.parameters",
        "traces.build",
        "learn.tasks.specs",
        "learn.rules",
    },
    "live": {"live", "protocol", "traces", "runs", "spec", "learn.rules"},
    "live.worker": {"live", "protocol", "traces", "runs", "spec", "learn"},
    "experiment": {"experiment", "spec", "sim", "learn", "protocol", "traces", "runs"},
    "report": {"report", "runs", "spec"},
    "dashboard": {"dashboard", "report", "runs", "spec"},
    "studies": {"studies", "experiment", "report", "runs", "spec"},
    "data": {"data", "traces"},
    "testing": {"testing", "storm", "sim", "protocol"},
    **{leaf: set() for leaf in LEAVES},
}
"""What a package may import of ours, besides itself and leaves. The most specific entry counts."""

TOP = {"cli", "bench", "api", "__init__", "__main__"}
"""May import everything, and nobody else imports them."""

PURE = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "heapq",
    "itertools", "math", "operator", "random", "struct", "typing", "msgspec", "numpy",
}  # fmt: skip
"""All that the protocol may import of others: no clock, no socket, no thread, no file, no log."""

ONLY_IN = {
    "torch": {"learn", "live.worker", "bench"},
    "asyncio": {"live", "bench", "cli"},
    "click": {"cli"},
    "rich": {"cli"},
}
"""Who may import what of others."""

READS_THE_CLOCK = {
    "bench",
    "cli",
    "dashboard",
    "live",
    "runs",
    "studies",
    "experiment",
    "learn.graph",
    "data.fetch",
    "machine",
    "cluster",
    "storm.seeds",
}
"""Packages and modules that may ask for the time of day or how long something took."""

GENERATORS = {"Generator", "PCG64", "SeedSequence", "default_rng"}
MODULE = re.compile(r"plexus(\.[a-z_]\w*)+(:\w+)?")


class Import(NamedTuple):
    path: str
    line: int
    module: str
    name: str
    deferred: bool = False
    """Inside a function, or for types alone."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module} {self.name}".rstrip()


def trees(source: Path) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(source.rglob("*.py")):
        yield file.relative_to(source).as_posix(), ast.parse(file.read_text())


def imports(source: Path) -> list[Import]:
    found: list[Import] = []
    for path, tree in trees(source):
        _collect(path, tree, False, found)
    return found


def _collect(path: str, node: ast.AST, deferred: bool, found: list[Import]) -> None:
    for child in ast.iter_child_nodes(node):
        later = deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            later = True
        if isinstance(child, ast.Import):
            found += [Import(path, child.lineno, a.name, "", later) for a in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{path}:{child.lineno}: imports are absolute here"
            module = child.module or ""
            found += [Import(path, child.lineno, module, a.name, later) for a in child.names]
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            # A module named in a string is imported by whoever reads the string.
            if MODULE.fullmatch(child.value) and _is_module(child.value.partition(":")[0]):
                found.append(Import(path, child.lineno, child.value.partition(":")[0], "", True))
        else:
            _collect(path, child, later, found)


@cache
def _is_module(name: str) -> bool:
    at = SOURCE.joinpath(*name.split(".")[1:])
    return at.with_suffix(".py").exists() or (at / "__init__.py").exists()


def module_of(path: str) -> str:
    """`live/worker/client.py` as `live.worker.client`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def target_of(found: Import) -> str | None:
    """Which module of ours is imported; `import plexus` alone is good for nothing but the version."""
    top, _, rest = found.module.partition(".")
    if top != "plexus":
        return None
    below = f"{rest}.{found.name}".strip(".")
    return below if _is_module(f"plexus.{below}") else rest or found.name or "__version__"


def wrong_directions(source: Path) -> list[str]:
    wrong = []
    for found in imports(source):
        target, module = target_of(found), module_of(found.path)
        if target is None or module.split(".")[0] in TOP:
            continue
        rule = max((each for each in MAY_IMPORT if within(module, each)), key=len, default=module)
        allowed = MAY_IMPORT.get(rule, set()) | {rule} | (LEAVES if rule != "protocol" else set())
        if not any(within(target, each) for each in allowed):
            wrong.append(str(found))
    return wrong


def misplaced(source: Path) -> list[str]:
    """torch outside learn, asyncio outside live, clocks where results must not depend on them."""
    wrong = []
    for found in imports(source):
        module, other = module_of(found.path), found.module.split(".")[0]
        homes = ONLY_IN.get(other)
        if homes is not None and not any(within(module, home) for home in homes):
            wrong.append(str(found))
        clocks = other in ("time", "datetime")
        if clocks and not any(within(module, home) for home in READS_THE_CLOCK):
            wrong.append(str(found))
        if other == "random" and found.name != "Random":
            wrong.append(str(found))
        if within(module, "protocol") and other not in PURE | {"plexus"}:
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
                if within(module_of(path), "protocol") and called in ("open", "print", "input"):
                    wrong.append(f"{path}:{node.lineno} {called}")
    return wrong


@pytest.mark.parametrize("check", [wrong_directions, misplaced, impurities])
def test_the_source_is_in_shape(check: object) -> None:
    assert check(SOURCE) == []  # type: ignore[operator]


def test_every_package_has_a_place_in_the_picture() -> None:
    packages = {p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()}
    assert packages <= set(MAY_IMPORT) | TOP


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        ("plexus.live.peer", ("plexus.sim", "plexus.learn.task", "torch")),
        ("plexus.spec.experiment", ("plexus.sim", "plexus.learn.task", "plexus.live", "torch")),
        ("plexus.protocol.plexus", ("plexus.sim", "plexus.traces", "torch", "asyncio")),
        ("plexus.sim.runtime", ("plexus.learn", "plexus.live", "torch")),
        ("plexus.cli", ("numpy", "torch", "msgspec", "rich")),
        ("plexus", ("numpy", "torch", "click")),
    ],
)
def test_importing_loads_nothing_that_is_not_needed(modules: str, never: tuple[str, ...]) -> None:
    """By way of others, too: what a process really loads."""
    code = f"import {modules}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert [m for m in loaded if any(within(m, each) for each in never)] == []


@pytest.mark.slow
def test_everything_can_be_imported_where_linux_is_not() -> None:
    """Where `fcntl` and `resource` are not there, as on Windows; macOS has both."""
    modules = [f"plexus.{module_of(path)}" for path, _ in trees(SOURCE) if not path.startswith("__")]
    if find_spec("triton") is None:
        modules.remove("plexus.learn.engines.kernels")
    code = (
        "import importlib, sys\n"
        "sys.modules |= dict.fromkeys(['fcntl', 'resource'])\n"
        f"for module in {modules}: importlib.import_module(module)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "code", "check"),
    [
        ("protocol/x.py", "from plexus.rng import stream", wrong_directions),
        ("protocol/x.py", "from plexus import rng", wrong_directions),
        ("protocol/x.py", "import plexus.sim.kernel", wrong_directions),
        ("sim/x.py", "from plexus.learn.graph import LazyModels", wrong_directions),
        ("sim/x.py", 'load("plexus.learn.graph:LazyModels")', wrong_directions),
        ("sim/x.py", "from plexus.storm import plan", wrong_directions),
        ("spec/x.py", "from plexus.sim import runtime", wrong_directions),
        ("spec/x.py", "from plexus.protocol import plexus", wrong_directions),
        ("live/x.py", "from plexus.learn.task import Task", wrong_directions),
        ("live/x.py", "from plexus.sim.kernel import Kernel", wrong_directions),
        ("learn/x.py", "def f():\n    from plexus.sim import kernel", wrong_directions),
        ("learn/x.py", "from plexus.protocol import api", wrong_directions),
        ("traces/x.py", "from plexus.runs import tables", wrong_directions),
        ("report/x.py", "from plexus.sim import kernel", wrong_directions),
        ("report/x.py", "from plexus.cli import progress", wrong_directions),
        ("errors.py", "from plexus.spec import experiment", wrong_directions),
        ("sim/x.py", "import torch.nn", misplaced),
        ("live/x.py", "import torch", misplaced),
        ("report/x.py", "import rich.table", misplaced),
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
