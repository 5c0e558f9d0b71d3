"""What `plexus new` writes: a project with a task of the user's own, which works as it is."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import numpy as np

from plexus.errors import PlexusError

TASK = '''\
"""What is learned. Plexus calls `build` with the number of nodes, the seed and the keys of [task]."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from plexus.learn import partition
from plexus.learn.measures import TOP1
from plexus.learn.own import examples_from
from plexus.learn.task import Sgd, Task
from plexus.rng import array_stream

READINGS = Path(__file__).parents[1] / "data" / "readings.csv"


class Readings(Dataset):
    """Any torch data set of (input, target) pairs will do. This one reads a CSV file."""

    def __init__(self, rows):
        table = np.loadtxt(READINGS, delimiter=",", skiprows=1, dtype=np.float32)[rows]
        self.inputs = torch.from_numpy(table[:, :-1])
        self.targets = torch.from_numpy(table[:, -1].astype(np.int64))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, row):
        return self.inputs[row], self.targets[row]


class Model(nn.Module):
    """Any torch module will do. This one tells three kinds of readings apart."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, inputs):
        return self.layers(inputs)


def build(nodes, seed, learning_rate=0.1):
    """The task for this many nodes. Keys of [task] other than `name` arrive as arguments."""
    with READINGS.open() as file:
        count = sum(1 for _ in file) - 1
    # One seeded split: what is tested on is never trained on. Plexus checks it by the ids.
    train_rows, test_rows = partition.split(count, 0.25, array_stream(seed, "split"))
    train = examples_from(Readings(train_rows))
    return Task(
        name="{name}",
        seed=seed,
        train=train,
        # Who has which examples: also by_user, dirichlet and shards, or rows of your own choice.
        parts=partition.iid(len(train), nodes, array_stream(seed, "partition")),
        test=examples_from(Readings(test_rows), first_id=len(train)),
        build_model=Model,
        loss=functional.cross_entropy,
        measure=TOP1,
        sgd=Sgd(learning_rate),
        local_steps=5,
        batch=20,
    )
'''

SESSION = """\
# A session of {name}: plexus run {name}/session.toml
name = "{name}"
seed = 1
nodes = 30
hours = 2.0

[protocol]
name = "plexus"
sample_size = 5

[task]
name = "{name}.task:build"    # package.module:factory, found beside this file
learning_rate = 0.1           # passed on to the factory

[traces]
availability = "none"         # everybody is always online

[evaluation]
every_rounds = 10
"""

TEST = '''\
"""Checks of the task: pytest {name}"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import LazyModels

from {name}.task import build


def test_it_learns():
    models = LazyModels(task := build(nodes=10, seed=1), InlineEngine(task))
    model = models.initial()
    for round in range(1, 31):
        trained = [models.train(model, node, round) for node in range(10)]
        model = models.mean(trained, [models.samples(node) for node in range(10)])
    assert models.evaluate(model).value > 0.9 > models.evaluate(models.initial()).value


def test_the_same_seed_gives_the_same_data():
    first, again, other = (build(nodes=4, seed=seed) for seed in (1, 1, 2))
    assert [part.tolist() for part in first.parts] == [part.tolist() for part in again.parts]
    assert [part.tolist() for part in first.parts] != [part.tolist() for part in other.parts]
'''


def write_project(name: str, into: Path) -> Path:
    """Make the folder `name` in `into`, with a task, data, a session file and a test."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise PlexusError(
            f"{name!r} cannot name a Python package: use lower-case letters, digits and underscores,"
            " beginning with a letter"
        )
    folder = into / name
    if folder.exists():
        raise PlexusError(f"{folder} is already there: choose another name or remove it")
    try:
        (folder / name).mkdir(parents=True)
        (folder / "data").mkdir()
    except OSError as error:
        raise PlexusError(f"{folder} cannot be made: {error.strerror}") from None
    (folder / name / "__init__.py").write_text("")
    (folder / name / "task.py").write_text(TASK.replace("{name}", name))
    (folder / "session.toml").write_text(SESSION.replace("{name}", name))
    (folder / "test_task.py").write_text(TEST.replace("{name}", name))
    _write_readings(folder / "data" / "readings.csv")
    return folder


def _write_readings(path: Path) -> None:
    """Made-up readings of three kinds of machine, each around its own centre."""
    rng = np.random.default_rng(1)
    kinds = rng.integers(0, 3, 600)
    centres = np.array([[20, 1.0, 0.2, 5], [22, 1.4, 0.5, 4], [25, 0.9, 0.6, 6]])
    values = centres[kinds] + rng.normal(0, [1.0, 0.15, 0.1, 0.5], (600, 4))
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    lines = ["temperature,vibration,noise,current,kind"]
    for row, kind in zip(scaled, kinds, strict=True):
        lines.append(",".join([*(f"{value:.3f}" for value in row), str(kind)]))
    path.write_text("\n".join(lines) + "\n")
