"""What is learned. Plexus calls `build` with the number of nodes, the seed and the keys of [task]."""

from functools import partial
from pathlib import Path

from torch import nn
from torch.nn import functional

from plexus import TOP1, Sgd, Task, array_stream, partition, read_schema

SCHEMA = Path(__file__).with_name("schema.json")
CSV = Path(__file__).with_name("sample.csv")  # made up: nobody is in it


class Model(nn.Module):
    """Any torch module will do."""

    def __init__(self, inputs, outputs, hidden=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, inputs):
        return self.layers(inputs)


def build(nodes, seed, learning_rate=0.1, hidden=16, schema=None, data=None):
    """The task for this many nodes. Keys of [task] other than `name` arrive as arguments.

    `data` is the table that a live node brings itself (--data): then it is the only node, and needs no other.
    """
    # Columns, classes and scales, the same on every machine; [task] names the file by its hash.
    known = read_schema(SCHEMA, schema)
    # Data that is no table: plexus.examples_from takes any torch data set.
    table = known.read(data or CSV)
    # One split, by which scales were learned too: what is tested on is never trained on.
    train, test = table.split()
    # Every node has the examples of one owner.
    owners = table.owners[train] if data is None else [str(data)] * len(train)
    parts = partition.by_user(owners, nodes, array_stream(seed, "partition"))
    return Task(
        name="triage",
        seed=seed,
        train=table.examples(train),
        parts=parts,
        test=table.examples(test),
        build_model=partial(Model, known.width, len(known.classes), hidden),
        loss=functional.cross_entropy,
        measure=TOP1,
        optimiser=Sgd(learning_rate),
        local_steps=5,
        batch=20,
        classes=known.classes,
        schema=known,
        notes=table.notes,
    )
