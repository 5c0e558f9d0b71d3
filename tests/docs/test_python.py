"""The Python that pages show runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from plexus.api import as_spec
from tests.docs.blocks import PAGES, ROOT

CODE = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TINY = [
    (r'"hours": 1, "nodes": 60, ', '"hours": 0.1, "nodes": 12, '),
    (r'changes=\{"hours": 1, "nodes": 60\}', 'changes={"hours": 0.1, "nodes": 12}'),
    (r'changes = \{"protocol', 'changes = {"hours": 0.1, "nodes": 12, "protocol'),
    (r'changes=\{"protocol', 'changes={"hours": 0.1, "nodes": 12, "protocol'),
    (r'quickstart\.toml", on_', 'quickstart.toml", changes={"hours": 0.1, "nodes": 12}, on_'),
    (r'simulate\("quickstart", (?!changes)', 'simulate("quickstart", changes={"hours": 0.1, "nodes": 12}, '),
    (r'simulate_many\("quickstart", ', "simulate_many(SMALL, "),
]
BEFORE = """
import plexus
plexus.simulate(
    "experiments/quickstart.toml", changes={"hours": 0.1, "nodes": 12}, out=DIRECTORY, force=True
)
"""
"""What pages about run directories take as given."""


def shown(page: Path) -> list[str]:
    return [code for mark, code in CODE.findall(page.read_text(encoding="utf-8")) if not mark]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)], ids=lambda page: page.name)
def test_python_of_a_page_runs(
    page: Path, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(clone / "examples")
    small = as_spec("quickstart", {"hours": 0.1, "nodes": 12})
    names: dict[str, object] = {"__name__": "__page__", "SMALL": small}
    for directory in re.findall(r'"(runs/[\w/-]+)"', "".join(shown(page))):
        exec(BEFORE.replace("DIRECTORY", repr(directory)), {})
    for code in shown(page):
        for pattern, replacement in TINY:
            code = re.sub(pattern, replacement, code)
        exec(compile(code, str(page.relative_to(ROOT)), "exec"), names)
    sys.modules.pop("whisper", None)
    capsys.readouterr()
