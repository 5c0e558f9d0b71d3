"""An example for every command: shown by its --help, printed in the reference, executed by a test."""

from __future__ import annotations

import click

QUICK = "experiments/quickstart.toml"
LIVE = "examples/digits-session.toml"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "plexus run quickstart",
        f"plexus run {QUICK} --set protocol.sample_size=5 --seed 7 --json",
        "plexus run --resume runs/quickstart",
    ),
    "new": ("plexus new mytask", "plexus new wine --csv wine.csv --target cultivar --owner estate"),
    "data": ("plexus data list",),
    "data list": ("plexus data list", "plexus data list --json"),
    "data info": ("plexus data info movielens-small",),
    "data fetch": ("plexus data fetch movielens-small",),
    "data import": ("plexus data import movielens-small ml-latest-small.zip",),
    "traces": (f"plexus traces describe {QUICK}",),
    "traces describe": (f"plexus traces describe {QUICK} --nodes 500 --plot traces.png",),
    "traces bench": ("plexus traces bench --nodes 10000",),
    "session": (f"plexus session init authority --from {LIVE}",),
    "session init": (f"plexus session init authority --from {LIVE}",),
    "session invite": ("plexus session invite authority ed25519:5f0c… --days 30 --out peer7.crt",),
    "session revoke": ("plexus session revoke authority 5f0c1b22a9d4",),
    "node": ("plexus node status --home peer7",),
    "node key": ("plexus node key --home peer7",),
    "node start": (
        "plexus node start session.toml --home peer7 --data 7 --join peer1.example.org:7000",
    ),
    "node status": ("plexus node status --home peer7 --json",),
    "node stop": ("plexus node stop --home peer7",),
    "export": ("plexus export model.safetensors --home peer7",),
    "fleet": (f"plexus fleet run {LIVE} --nodes 4 --seconds 20",),
    "fleet run": (
        f"plexus fleet run {LIVE} --nodes 4 --rounds 3",
        f"plexus fleet run {LIVE} --nodes 12 --shape",
    ),
    "bench": ("plexus bench protocol --nodes 100 --hours 1",),
    "bench protocol": ("plexus bench protocol --nodes 1000 --hours 1 --churn --json",),
    "bench training": ("plexus bench training --task digits --engine stacked --clients 16",),
    "bench transport": ("plexus bench transport --megabytes 20",),
    "report": ("plexus report runs/quickstart",),
    "compare": ("plexus compare runs/quickstart runs/other",),
    "dashboard": ("plexus dashboard runs",),
    "reproduce": ("plexus reproduce table2 --size tiny",),
    "storm": (
        "plexus storm --seeds 1..200",
        "plexus storm --minutes 10",
        "plexus storm --seed 7 --trace",
    ),
    "doctor": ("plexus doctor", "plexus doctor --json"),
    "completion": ("source <(plexus completion bash)",),
}
"""By the words after `plexus`. Paths are those of a clone of the repository."""


def with_examples(command: click.Command, path: str) -> None:
    """Let the help of a command, and of those below it, end with its examples."""
    lines = EXAMPLES.get(path, ())
    if lines and not command.epilog:
        heading = "Example:" if len(lines) == 1 else "Examples:"
        # Backspace: what follows keeps its lines.
        command.epilog = "\b\n" + "\n".join([heading, *(f"  {line}" for line in lines)])
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            with_examples(below, f"{path} {name}")
