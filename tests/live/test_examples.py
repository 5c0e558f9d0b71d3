"""Every command that pages and examples about live peers show exists; those of pictures and texts are run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from plexus.cli import cli
from plexus.learn.saved import load_model
from plexus.spec.experiment import load_spec
from tests.live.test_commands import plexus

ROOT = Path(__file__).parents[2]
SHOWN = {
    "docs/deployment.md": 15,
    "docs/security.md": 0,
    "examples/plexus-node.service": 2,
    "examples/Containerfile": 1,
    "examples/digits-session.toml": 2,
    "examples/hospital/README.md": 5,
    "examples/hospital/session.toml": 2,
    "examples/images/session.toml": 2,
    "examples/lora/session.toml": 2,
    "examples/own_loop/session.toml": 2,
    "examples/text/session.toml": 2,
}
"""File -> how many commands it shows at least."""
_COMMAND = re.compile(r"\bplexus ((?:node|session|fleet|export|run|bench) [^#`)\n]+)")


def commands(text: str) -> list[list[str]]:
    """The words after `plexus` of all commands in `text`, whatever the comment signs around them."""
    unfolded = re.sub(r"\\\n#?\s*", "", text)
    return [shlex.split(found[1]) for found in _COMMAND.finditer(unfolded)]


def parse(words: list[str]) -> click.Context:
    """Read a command line as `plexus` would, without doing anything."""
    command: click.Command = cli
    context = click.Context(cli, info_name="plexus")
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    return command.make_context("plexus", list(words))


@pytest.mark.parametrize("name", SHOWN)
def test_the_commands_shown_exist(name: str) -> None:
    shown = commands((ROOT / name).read_text())
    assert len(shown) >= SHOWN[name]
    for words in shown:
        try:
            parse(words)
        except click.UsageError as error:
            pytest.fail(f"{name}: plexus {shlex.join(words)}: {error.format_message()}")


def test_what_does_not_exist_is_noticed() -> None:
    [words] = commands("plexus node start session.toml --data 0 \\\n#   --no-such-option 7")
    with pytest.raises(click.NoSuchOption):
        parse(words)


def test_the_service_manager_is_told_and_waits_for_it() -> None:
    lines = (ROOT / "examples/plexus-node.service").read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=60"} <= set(lines)
    # Who would start the peer for it (sudo, a shell) would have to pass the news on.
    assert "ExecStart=/opt/plexus/.venv/bin/plexus node start" in "\n".join(lines)


def test_the_service_may_do_little() -> None:
    unit = ROOT / "examples/plexus-node.service"
    lines = set(unit.read_text().splitlines())
    assert {"NoNewPrivileges=true", "CapabilityBoundingSet=", "SystemCallFilter=@system-service"} <= lines
    protected = {
        "Clock",
        "ControlGroups",
        "Home",
        "Hostname",
        "KernelLogs",
        "KernelModules",
        "KernelTunables",
    }
    assert {f"Protect{what}=true" for what in protected} | {"ProtectProc=invisible"} <= lines
    assert {f"Restrict{what}=true" for what in ("Namespaces", "Realtime", "SUIDSGID")} <= lines
    assert not any(line.startswith("MemoryDenyWriteExecute") for line in lines), "torch could not compile"
    if shutil.which("systemd-analyze"):
        judge = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]  # 2.0 of 10
        done = subprocess.run(judge, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_example_can_be_run_live() -> None:
    spec = load_spec(ROOT / "examples/digits-session.toml")
    assert spec.protocol.name == "plexus"
    assert spec.nodes == 12


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "script", "least"), [("images", "draw.py", 0.4), ("text", "collect.py", 0.2)]
)
def test_pictures_and_texts_of_several_owners(name: str, script: str, least: float, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("data", "__pycache__")
    shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=ignored)
    subprocess.run([sys.executable, tmp_path / name / script], check=True, capture_output=True)
    session = tmp_path / name / "session.toml"
    plexus("fleet", "run", session, "--nodes", 3, "--rounds", 30, "--out", "fleet", cwd=tmp_path)
    result = json.loads((tmp_path / "fleet" / "result.json").read_text())
    assert not result["interrupted"] and result["metric"]["best"] > least
    plexus("export", "fleet", "-o", "model.safetensors", "--best", cwd=tmp_path)
    module = load_model(tmp_path / "model.safetensors", tmp_path / name)
    assert sum(each.numel() for each in module.parameters()) > 10_000
