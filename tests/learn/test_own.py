"""Tasks of the user's own: what they may be, and what is said when something is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from plexus.errors import PlexusError
from plexus.learn.tasks import build_task, parse_task
from plexus.learn.tasks.own import examples_from
from plexus.loading import OwnSpec

MODULE = """
from plexus.errors import PlexusError
from plexus.learn.tasks import create_task
number = 3
def good(nodes, seed, **more): return create_task("digits", nodes, seed, **more)
def raises(nodes, seed): raise KeyError("lost")
def silent(nodes, seed): raise RuntimeError
def clear(nodes, seed): raise PlexusError("the sensor file is missing")
def wrong(nodes, seed): return 7
def picky(nodes, seed, *, rows, hidden=8): return create_task("digits", nodes, seed, hidden=hidden)
def fewer(nodes, seed): return create_task("digits", 2, seed)
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name, tmp_path


def build(module: tuple[str, Path], factory: str, **parameters: object):  # type: ignore[no-untyped-def]
    name, folder = module
    return build_task(OwnSpec(f"{name}:{factory}", dict(parameters)), 5, 1, folder)


def test_a_factory_gets_nodes_seed_and_parameters(module: tuple[str, Path]) -> None:
    task = build(module, "good", hidden=8)
    assert (task.nodes, task.seed) == (5, 1)
    assert sum(p.numel() for p in task.initial_model().parameters()) == 64 * 8 + 8 + 80 + 10


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rows": 3, "hiden": 8}, r"^task\.hiden: .*:picky takes rows, hidden \(did you mean 'hidden'\?\)$"),
        ({"rows": 3, "colour": 8}, r"^task\.colour: .*:picky takes rows, hidden$"),
        ({"hidden": 8}, r"^task\.rows: missing; .*:picky has no default for it$"),
    ],
)  # fmt: skip
def test_a_key_that_a_factory_does_not_take_is_named(
    module: tuple[str, Path], parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(PlexusError, match=message):
        build(module, "picky", **parameters)
    assert build(module, "picky", rows=3).nodes == 5


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("raises", "failed: KeyError: 'lost'"),
        ("silent", "failed: RuntimeError: no message"),
        ("clear", "^the sensor file is missing$"),
        ("wrong", "must return a Task, not a int"),
        ("fewer", "has data for 2 nodes, not for 5"),
        ("absent", "has no function 'absent'"),
        ("number", "has no function 'number'"),
    ],
)
def test_what_is_wrong_with_a_factory_is_one_line(
    module: tuple[str, Path], factory: str, message: str
) -> None:
    with pytest.raises(PlexusError, match=message) as caught:
        build(module, factory)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken_task.py").write_text("import not_to_be_found_anywhere\n")
    for name in ("broken_task:f", "missing_module_x.y:f", ":f"):
        with pytest.raises(PlexusError, match=rf"task\.name: module '{name[:-2]}' cannot be imported"):
            build_task(OwnSpec(name), 5, 1, tmp_path)


def test_a_module_that_lacks_an_extra_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photo_task.py").write_text("from PIL import Image\n")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PlexusError, match=r"PIL .*: pip install 'plexus-learning\[images\]'$"):
        build_task(OwnSpec("photo_task:f"), 5, 1, tmp_path)


def test_two_projects_may_have_modules_of_one_name(tmp_path: Path) -> None:
    for name, learning_rate in (("first", 0.25), ("second", 0.5)):
        (tmp_path / name / "samename").mkdir(parents=True)
        (tmp_path / name / "samename" / "__init__.py").write_text("")
        (tmp_path / name / "samename" / "task.py").write_text(
            "from plexus.learn.tasks import create_task\n"
            "def build(nodes, seed):\n"
            f"    return create_task('digits', nodes, seed, learning_rate={learning_rate})\n"
        )
    for name, learning_rate in (("first", 0.25), ("second", 0.5), ("first", 0.25)):
        task = build_task(OwnSpec("samename.task:build"), 5, 1, tmp_path / name)
        assert task.optimiser.learning_rate == learning_rate


def test_a_name_with_a_colon_is_a_factory() -> None:
    assert parse_task("a.b:c") == OwnSpec("a.b:c")
    spec = parse_task({"name": "a.b:c", "depth": 3})
    assert spec == OwnSpec("a.b:c", {"depth": 3})
    assert spec.table() == {"name": "a.b:c", "depth": 3}


def test_any_data_set_becomes_examples() -> None:
    inputs, targets = torch.rand(6, 2, 3), torch.arange(6)
    examples = examples_from(TensorDataset(inputs, targets), first_id=10)
    assert torch.equal(examples.inputs, inputs)
    assert torch.equal(examples.targets, targets)
    assert examples.ids.tolist() == list(range(10, 16))


class Items(Dataset):  # type: ignore[type-arg]
    def __init__(self, items: list[object]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> object:
        return self.items[row]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "a data set is empty"),
        ([(torch.zeros(2), 1), (torch.zeros(3), 1)], "all of the same shape"),
        ([(1, 2, 3)], "pairs"),
        ([5], "pairs"),
        ([("text", 1)], "pairs of numbers or tensors"),
    ],
)
def test_a_data_set_of_something_else_is_refused(items: list[object], message: str) -> None:
    with pytest.raises(PlexusError, match=message):
        examples_from(Items(items))
