"""The same commands, smaller: what a page shows takes minutes, what a test runs must not."""

from __future__ import annotations

import re

TINY = [
    (r"make quickstart", "plexus run experiments/quickstart.toml --out runs/quickstart --force"),
    (
        r"plexus run (experiments/quickstart|examples/[\w-]+|(?:wine|cellar|mytask)/session)\.toml",
        r"plexus run \1.toml --set hours=0.1 --set nodes=12",
    ),
    (r"plexus run quickstart\b", "plexus run quickstart --set hours=0.1 --set nodes=12"),
    (r"plexus run (pets|examples/\w+)/session\.toml", r"plexus run \1/session.toml --set hours=0.05"),
    (r"plexus sweep quickstart", "plexus sweep quickstart --set nodes=12"),
    (r"(plexus sweep .*)--set hours=2", r"\1--set hours=0.1"),
    (r"(plexus sweep .*)--seeds 1\.\.[38]", r"\1--seeds 1,2"),
    (r"(plexus sweep digits .*)--set nodes=\d+ --set hours=[\d.]+", r"\1--set nodes=20 --set hours=0.05"),
    (r"plexus sweep wine/session\.toml", "plexus sweep wine/session.toml --set hours=0.1"),
    (r"for seed in 1 2( 3)?;", "for seed in 1;"),
    (r"--set nodes=500", "--set nodes=20"),
    (r"plexus bench protocol --nodes \d+ --hours 1", "plexus bench protocol --nodes 40 --hours 0.1"),
    (r"--clients \d+", "--clients 2 --repeats 1"),
    (r"(plexus traces \w+ .*?)--nodes \d+", r"\1--nodes 50"),
    (r"plexus traces bench --nodes \d+", "plexus traces bench --nodes 50"),
    (r"plexus bench transport --megabytes \d+", "plexus bench transport --megabytes 1"),
    (r"(plexus fleet run \S+) --nodes \d+( --rounds \d+| --seconds \d+)?$", r"\1 --nodes 3 --rounds 2"),
    # Not a time, but what one waits for.
    (r"from_h=1, to_h=3", "from_h=0.02, to_h=0.05"),
    (r"^sleep 30$", "until plexus export ann -o first.safetensors 2> waiting.log; do sleep 0.5; done"),
    (r"^sleep \d+$", "until plexus export peer0 -o first.safetensors 2> waiting.log; do sleep 0.5; done"),
]

UNFIT = {
    r"plexus dashboard|--watch\b": "waits for somebody to look; tests/dashboard looks",
    r"plexus reproduce (?!.*--plan|mine/)": "minutes; tests/studies",
    r"reproduce-paper|experiments/cifar10": "needs CIFAR-10, and hours or a GPU",
    r"plexus storm": "minutes; tests/storm",
    r"plexus data (fetch|import)": "needs a network or the file; tests/data does it from here",
    r"(README|deployment)\.md: plexus fleet run": "the guides do",
}
"""Commands that are not run, by what they look like (`PAGE: COMMAND`), and why."""


def unfit(page: str, command: str) -> str | None:
    """Why a command that a page shows is not run, if it is not."""
    line = f"{page}: {command}"
    return next((why for pattern, why in UNFIT.items() if re.search(pattern, line)), None)


def shrunk(command: str, ports: dict[str, str]) -> str:
    """`command` as the test runs it; `ports` are free ones in place of those shown."""
    for pattern, replacement in TINY:
        command = re.sub(pattern, replacement, command)
    for shown, free in ports.items():
        command = command.replace(f"127.0.0.1:{shown}", f"127.0.0.1:{free}")
    return command
