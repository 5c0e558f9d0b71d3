"""A protocol of the user's own: the one of docs/write-a-protocol.md, and what can be wrong with one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import plexus
from plexus.api import as_spec
from plexus.loading import load_own
from plexus.protocol.messages import Message
from plexus.protocol.wire import frame_bytes
from plexus.sim.network import Accounts
from plexus.sim.protocols import find

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "write-a-protocol.md"
MODULE = """
from msgspec import Struct
from plexus import own_protocol
class Parameters(Struct, frozen=True):
    fanout: int = 2
good = own_protocol(None, Parameters)
plain = own_protocol(None)
number = 3
"""


@pytest.mark.parametrize(
    ("language", "file"), [("python", "whisper.py"), ("toml", "whisper.toml"), ("python", "first_in_line.py")]
)
def test_the_page_shows_the_example_as_it_is(language: str, file: str) -> None:
    shown = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert (ROOT / "examples" / file).read_text() in shown


def test_it_has_sixty_lines() -> None:
    assert len((ROOT / "examples" / "whisper.py").read_text().splitlines()) <= 60


@pytest.mark.slow
def test_it_learns_and_does_so_again(tmp_path: Path) -> None:
    def run(name: str, **changes: Any) -> plexus.Run:
        return plexus.simulate(
            ROOT / "examples" / "whisper.toml", out=tmp_path / name, changes={"nodes": 12, **changes}
        )

    first, again = run("first"), run("again")
    assert first.result is not None and again.result is not None
    assert first.result.metric.best is not None and first.result.metric.best > 0.8
    assert first.result.digest == again.result.digest
    assert set(first.node_metrics["node"].tolist()) <= set(range(12))
    assert first.spec["protocol"] == {"name": "whisper:whisper", "fanout": 3}
    alone = run("alone", **{"protocol.fanout": 0})
    assert alone.result is not None
    assert alone.result.messages["model"].count == 0


VARIATION = """
from plexus import PlexusNode, own_protocol
class Same(PlexusNode):
    pass
class Last(PlexusNode):
    def aggregator_rank(self, node):
        return node
same, last = own_protocol(Same), own_protocol(Last)
"""


@pytest.mark.slow
def test_a_variation_of_plexus_changes_who_aggregates_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a spec that comes with Plexus: modules are then searched where one is."""
    monkeypatch.chdir(tmp_path)
    Path("variations.py").write_text(VARIATION)

    def run(name: str) -> plexus.Run:
        changes = {"nodes": 12, "hours": 0.2, "traces.availability": "none", "protocol.name": name}
        return plexus.simulate("quickstart", out=name, changes=changes)

    plain, same, last = map(run, ("plexus", "variations:same", "variations:last"))
    assert plain.result is not None and same.result is not None
    assert same.result.digest == plain.result.digest
    trained = last.detail("trainings")
    rounds = list(zip(last.rounds["round"].tolist(), last.rounds["aggregator"].tolist(), strict=True))[:-1]
    assert rounds != list(zip(plain.rounds["round"], plain.rounds["aggregator"], strict=True))[:-1]
    assert [who for _, who in rounds] == [max(trained["node"][trained["round"] == k]) for k, _ in rounds]


def own(tmp_path: Path, name: str, **keys: Any) -> Any:
    (tmp_path / "own_protocols.py").write_text(MODULE)
    spec = {"name": "x", "nodes": 3, "hours": 1, "task": "digits"}
    chosen = as_spec({**spec, "protocol": {"name": name, **keys}})
    return find(chosen.protocol.name, chosen.protocol.parameters, tmp_path)[1]


def test_its_parameters_are_checked_when_it_is_found(tmp_path: Path) -> None:
    assert own(tmp_path, "own_protocols:good").fanout == 2
    assert own(tmp_path, "own_protocols:good", fanout=7).fanout == 7


@pytest.mark.parametrize(
    ("name", "keys", "complaint"),
    [
        ("no_such_module_x:p", {}, "protocol.name: module 'no_such_module_x' cannot be imported"),
        ("own_protocols:p", {}, "module own_protocols has no 'p': make it with plexus.own_protocol"),
        ("own_protocols:number", {}, "has a int, not a protocol, 'number'"),
        (
            "own_protocols:good",
            {"fanuot": 3},
            "protocol.fanuot: unknown key (did you mean 'protocol.fanout'?)",
        ),
        ("own_protocols:good", {"fanout": "3"}, "protocol.fanout: expected an integer, got '3'"),
        ("own_protocols:plain", {"fanout": 3}, "protocol.fanout: unknown key; there are none here"),
    ],
)
def test_what_is_wrong_is_one_line(name: str, keys: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(plexus.PlexusError, match=re.escape(complaint)) as caught:
        own(tmp_path, name, **keys)
    assert "\n" not in str(caught.value)


class Rumour(Message, frozen=True):
    """A message that no other protocol has."""

    age: int
    model: Any


class Hush(Message, frozen=True):
    """One without a model."""

    age: int


def test_a_message_of_ones_own_is_accounted() -> None:
    # A length, an array of tag and fields, each as long as MessagePack makes it.
    assert frame_bytes(Hush(3)) == 4 + 2 + 1
    assert frame_bytes(Rumour(300, None), model_bytes=70_000) == 4 + 2 + 3 + 5
    accounts = Accounts(2)
    accounts.send_control(0, Hush, 2, 7)
    accounts.begin_transfers(Rumour, 1, has_view=False)
    accounts.send_transfer(0, Rumour, 500, 0)
    table = accounts.table()
    assert table["Hush"] == {"count": 2, "bytes": 14}
    assert table["model"] == {"count": 1, "bytes": 500}


def test_of_two_projects_each_has_its_own_modules(tmp_path: Path) -> None:
    for project in ("one", "two"):
        for folder in ("with_init", "without"):
            (tmp_path / project / folder).mkdir(parents=True)
            (tmp_path / project / folder / "protocol.py").write_text(f"name = {project!r}\n")
        (tmp_path / project / "with_init" / "__init__.py").touch()
    for project in ("one", "two", "one"):
        for folder in ("with_init", "without"):
            assert load_own(f"{folder}.protocol:name", tmp_path / project, "test") == project
