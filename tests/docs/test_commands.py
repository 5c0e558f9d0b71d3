"""Every command that README, documentation and help show is executed, or says why it is not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest

from plexus import cli
from plexus.cli.groups import examples
from tests.docs.blocks import PAGES, ROOT, SHELL, Block, blocks, inline
from tests.docs.shrink import shrunk, unfit
from tests.machines import two_machines

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHOWN = [block for block in BLOCKS if block.language in SHELL]
PAGES_WITH_COMMANDS = list(dict.fromkeys(block.page for block in SHOWN if not block.reason))
NOT_RUN = [
    (block, command, reason)
    for block in SHOWN
    for command in block.commands
    if (reason := block.reason or unfit(block.page, command))
]
SHOWN_BY_HELP = {
    "node": "needs a running peer; own-task.md has one",
    "export": "needs a running peer; own-task.md has one",
    "predict": "needs a model; first-hour.md has one",
    "session invite": "needs a peer's key; own-task.md has one",
    "session list": "needs an authority; tests/live/test_operating.py has one",
    "session renew": "needs an admitted peer; tests/live/test_operating.py has one",
    "session remove": "needs an admitted peer; tests/live/test_operating.py has one",
    "session status": "needs a node's home; tests/live/test_course.py has some",
    "session revoke": "needs an admitted peer; tests/live has some",
    "session suspects": "needs the logs of peers; tests/live has some",
    "data fetch": "needs a network",
    "data import": "needs the file; tests/data imports some",
    "fleet": "several seconds of several processes; first-ten-minutes.md runs one",
    "completion": "changes the shell that one works in",
    "new": "first-hour.md runs it",
    "run": "first-ten-minutes.md runs these",
    "report": "tests/report",
    "sweep": "sweep.md runs some",
    "runs": "run-directory.md runs these",
    "compare": "tests/report",
    "dashboard": "waits for somebody to look; tests/dashboard",
    "reproduce": "minutes; tests/studies",
    "storm": "minutes; tests/storm",
}
"""Examples of --help that are not run here, by the beginning of the command."""


@pytest.fixture
def surroundings(page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page takes for granted: that of clusters has one."""
    if page != "docs/cluster.md":
        yield
        return
    with two_machines() as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield


@pytest.mark.docs
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_commands_of_a_page_run(
    page: str, clone: Path, surroundings: None, capfd: pytest.CaptureFixture[str]
) -> None:
    ports = dict(zip(("7000", "7001", "7002"), free_ports(3), strict=True))
    for block in BLOCKS:
        if block.page != page or block.reason:
            continue
        if block.file:
            Path(block.file).write_text(block.text)
        if block.language not in SHELL:
            continue
        commands = [shrunk(line, ports) for line in block.commands if unfit(page, line) is None]
        if any(re.search(r"( &|\bdo)$", line) for line in commands):  # lines that belong together
            in_bash("set -e\n" + "\n".join(commands), block)
        else:
            for command in commands:
                execute(command, block)
    capfd.readouterr()


@pytest.mark.docs
@pytest.mark.slow
def test_examples_of_the_help_run(clone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path, lines in examples().items():
        if cli_has(path) and not any(path.startswith(each) for each in SHOWN_BY_HELP):
            for line in lines:
                assert unfit("help", line) is None
                shutil.rmtree("authority", ignore_errors=True)
                execute(shrunk(line, {}), f"help of {path}")
    capfd.readouterr()


@pytest.mark.parametrize(("block", "command", "reason"), NOT_RUN, ids=str)
def test_what_is_not_run_says_why(block: Block, command: str, reason: str) -> None:
    check_options(command)
    pytest.skip(f"{block.page}: {command}: {reason}")


def test_commands_are_marked_as_commands() -> None:
    unmarked = [
        str(block)
        for block in BLOCKS
        if block.language not in (*SHELL, "text", "python", "toml")
        and any(re.match(r"(\$ )?(plexus|make) ", line) for line in block.commands)
    ]
    assert unmarked == [], "fence them as console, so that they are run"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "toml"], ids=str)
def test_settings_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_within_sentences_exist(page: Path) -> None:
    for command in inline(page):
        check_options(command)


def execute(command: str, where: object) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"{where}: {command}"
    elif words[0] == "plexus" and not re.search(r"[|&;<>$]", command):
        with pytest.raises(SystemExit) as stop:
            cli.main(words[1:])
        assert stop.value.code == 0, f"{where}: {command}"
    else:
        in_bash(command, where)


def in_bash(script: str, where: object) -> None:
    command = ["bash", "-o", "pipefail", "-c", script]
    # As where the environment is active, of which pages speak.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as done:
        try:
            out, err = done.communicate(timeout=250)
        finally:
            with suppress(ProcessLookupError):  # peers that a script that failed left behind
                os.killpg(done.pid, signal.SIGKILL)
    assert done.returncode == 0, f"{where}: {script}\n{out[-800:]}{err[-800:]}"


def cli_has(path: str) -> bool:
    return path.split()[0] in cli.cli.list_commands(click.Context(cli.cli))


def check_options(command: str) -> None:
    """The command exists, and has the options that are shown."""
    words = re.split(r"\s+", command.split("#")[0].strip())
    if words[0] != "plexus" or not re.fullmatch(r"[a-z-]+", words[1]) or not cli_has(words[1]):
        return
    at: click.Command | None = cli.cli
    context = click.Context(cli.cli, info_name="plexus")
    for word in words[1:]:
        if not isinstance(at, click.Group) or word in ("…", "|"):
            break
        at = at.get_command(context, word)
        assert at is not None, f"{command}: there is no command {word}"
        context = click.Context(at, info_name=word, parent=context)
    assert at is not None
    known = {option for each in at.params for option in each.opts} | {"--help"}
    shown = set(re.findall(r"(?<=\s)--[a-z-]+", command))
    assert shown <= known, f"{command}: {shown - known} is no option"


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
