"""How the command line treats people: grouped help, examples, hints, completion, colours, `doctor`."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from plexus import cli
from plexus.cli import doctor
from plexus.cli.groups import examples
from plexus.files import named
from tests.cli.standin import Plexus


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command of this installation, by the words after `plexus`."""

    def below(group: click.Group, context: click.Context, path: str) -> Iterator[str]:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            words = f"{path} {name}".strip()
            yield words, command
            if isinstance(command, click.Group):
                inner = click.Context(command, info_name=name, parent=context)
                yield from below(command, inner, words)

    return below(cli.cli, click.Context(cli.cli, info_name="plexus"), "")  # type: ignore[return-value]


COMMANDS = dict(all_commands())


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_says_what_it_does_and_shows_an_example(plexus: Plexus, path: str) -> None:
    outcome = plexus(*path.split(), "--help")
    assert outcome.status == 0
    assert COMMANDS[path].get_short_help_str(), "no docstring"
    _, _, examples = outcome.out.rpartition("Example")
    assert f"plexus {path}" in examples


@pytest.mark.parametrize("path", [path for path in examples() if path in COMMANDS])
def test_the_options_of_every_example_exist(path: str) -> None:
    known = {option for each in COMMANDS[path].params for option in each.opts}
    if not isinstance(COMMANDS[path], click.Group):
        for line in examples()[path]:
            used = {word for word in line.split() if word.startswith("--")}
            assert used <= known


def test_help_is_grouped_by_what_one_wants_to_do(plexus: Plexus) -> None:
    text = plexus("--help").out
    headings = [line for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings[:3] == ["Options:", "Simulate:", headings[2]]
    assert headings[-1] == "This machine:"
    assert "Commands:" not in headings, "every command has a heading in groups.COMMANDS"
    for status in (0, 1, cli.BAD_INPUT, cli.INTERRUPTED):
        assert f" {status} " in text.rpartition("Exit status:")[2]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rnu"], "No such command 'rnu' (did you mean 'run'?)."),
        (["sesion", "init"], "No such command 'sesion' (did you mean 'session'?)."),
        (["bench", "protocoll"], "No such command 'protocoll' (did you mean 'protocol'?)."),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_a_misspelt_command_is_guessed(plexus: Plexus, arguments: list[str], hint: str) -> None:
    outcome = plexus(*arguments)
    assert (outcome.status, outcome.err.splitlines()[-1]) == (2, f"Error: {hint}")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "experiments/smal.toml"], "(did you mean 'experiments/small.toml'?)"),
        (["run", "experiments/small.toml", "--set", "nods=3"], "(did you mean 'nodes'?)"),
        (["run", "experiments/small.toml", "--set", "task.name=digit"], "(did you mean 'digits'?)"),
        (["data", "info", "movielens-smal"], "(did you mean 'movielens-small'?)"),
    ],
)
def test_a_misspelt_word_is_guessed(plexus: Plexus, arguments: list[str], hint: str) -> None:
    outcome = plexus(*arguments)
    assert outcome.status == 2
    assert outcome.err.startswith("plexus: ") and outcome.err.endswith(f"{hint}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["storm", "--seeds", "1..2", "--minutes", "nan"],
        ["bench", "protocol", "--hours", "nan"],
        ["run", "quickstart", "--checkpoint-every", "nan"],
        ["fleet", "run", "spec.toml", "--seconds", "NaN"],
    ],
)
def test_what_is_no_number_is_in_no_range(plexus: Plexus, arguments: list[str]) -> None:
    outcome = plexus(*arguments)
    assert outcome.status == 2
    assert outcome.err.endswith(f"{arguments[-1]!r} is not a number.\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(plexus: Plexus, shell: str) -> None:
    outcome = plexus("completion", shell)
    assert outcome.status == 0
    assert f"_PLEXUS_COMPLETE={shell}_complete" in outcome.out
    assert "plexus" in outcome.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plexus do", ["doctor"]),
        ("plexus run --ch", ["--checkpoint-every"]),
        ("plexus node st", ["start", "status", "stop"]),
    ],
)
def test_the_shell_gets_what_completes(words: str, expected: list[str]) -> None:
    environment = {
        **os.environ,
        "_PLEXUS_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    command = [sys.executable, "-m", "plexus"]
    printed = subprocess.check_output(command, env=environment, text=True)
    assert [line.partition(",")[2] for line in printed.splitlines()] == expected


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    child = subprocess.Popen(
        [sys.executable, "-m", "plexus", *arguments],
        stdout=theirs, stderr=theirs, env={**plain, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    written = b""
    with child:
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    return written


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("doctor",), ("bench", "protocol", "--nodes", "5")])
def test_colours_only_where_they_are_wanted(arguments: tuple[str, ...]) -> None:
    assert b"\x1b[" in on_a_terminal(*arguments)
    assert b"\x1b[3" not in on_a_terminal(*arguments, NO_COLOR="1")
    command = [sys.executable, "-m", "plexus", *arguments]
    assert b"\x1b" not in subprocess.run(command, capture_output=True, check=True).stdout


def test_who_has_read_enough_of_the_output_is_no_files_fault() -> None:
    with pytest.raises(BrokenPipeError), named(Path("rows.csv")):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_doctor_finds_what_everybody_needs(plexus: Plexus) -> None:
    outcome = plexus("doctor", "--json")
    printed = json.loads(outcome.out)
    assert (outcome.status, printed["ok"]) == (0, True)
    found = {finding["name"]: finding for finding in printed["findings"]}
    expected = {"python", "torch", "device", "cores", "memory", "disk", "data", "port", "browser"}
    assert expected <= found.keys()
    assert found["torch"]["state"] == "ok"
    assert plexus("doctor").out.splitlines()[-1] == "ready"


def test_doctor_names_what_is_missing_and_how_to_mend_it(
    plexus: Plexus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = plexus("doctor")
    assert outcome.status == 1
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert any(line.startswith("✗ torch") for line in lines)
    assert "→ pip install torch" in lines
    assert lines[-1] == "something is missing"


def test_doctor_sees_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert doctor._port(port).state == "optional"
    assert doctor._port(port).state == "ok"


@pytest.mark.parametrize("arguments", [("data", "list"), ("data", "info", "cifar10")])
def test_json_is_one_object(plexus: Plexus, arguments: tuple[str, ...]) -> None:
    printed = json.loads(plexus(*arguments, "--json").out)
    datasets = printed.get("datasets", [printed])
    assert "cifar10" in [each["name"] for each in datasets]
    assert all(each["state"] in ("here", "fetch", "import", "in part", "differs") for each in datasets)
