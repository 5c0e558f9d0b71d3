"""What operators may get wrong: every command says it in one line, ends with 2 and touches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus import cli
from tests.cli.test_manners import COMMANDS
from tests.live.test_course import SPEC
from tests.live.test_operating import new_key

OPERATING = ("node", "session", "fleet", "export", "predict", "doctor")
START = ["node", "start", "authority/session.toml", "--home", "home", "--data", "0"]
WRONG: list[tuple[list[str], str]] = [
    (["node", "key", "--home", "spec.toml"], "spec.toml: File exists"),
    (["node", "key", "--home", "damaged"], "damaged/node.key: "),
    (["node", "start", "nowhere.toml", "--data", "0"], "nowhere.toml: no such file"),
    (["node", "start", "spec.toml", "--data", "0"], "spec.toml: [session] has no authority"),
    (
        [*START[:5], "--data", "seven.csv"],
        "home/node.crt: no such file: it is what the authority's `plexus session invite` writes",
    ),
    ([*START, "--listen", "7000"], "--listen 7000: not an address: expected host:port"),
    ([*START, "--listen", "127.0.0.1:99999"], "--listen 127.0.0.1:99999: not an address"),
    ([*START, "--listen", "::1:7000"], "--listen ::1:7000: write an IPv6 address in brackets"),
    ([*START, "--advertise", "nobody"], "--advertise nobody: not an address: expected host:port"),
    (
        [*START, "--advertise", "0.0.0.0:1"],
        "--advertise 0.0.0.0:1: nobody can dial that; give the address that",
    ),
    ([*START, "--advertise", "[::]:1"], "--advertise [::]:1: nobody can dial that"),
    ([*START, "--advertise", "127.0.0.1:0"], "--advertise 127.0.0.1:0: nobody can dial that"),
    ([*START, "--advertise", "no.invalid:1"], "--advertise no.invalid:1: host no.invalid cannot be found"),
    ([*START, "--join", "host:"], "--join host:: not an address: expected host:port"),
    ([*START, "--join", "no.invalid:7000"], "home/node.crt: no such file"),
    ([*START, "--at-least", "-1"], "-1 is not in the range x>=0"),
    ([*START, "--bandwidth", "5000000000"], "--bandwidth 5000000000: at most 4294967295 bytes per second"),
    ([*START, "--metrics", "9464"], "--metrics 9464: not an address: expected host:port"),
    ([*START, "--source", "no.invalid"], "--source no.invalid: host no.invalid cannot be found"),
    ([*START, "--memory", "0"], "0 is not in the range x>=1"),
    ([*START, "--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning'"),
    (["node", "status", "--home", "home"], "home: no peer is running here"),
    (["node", "stop", "--home", "nowhere"], "nowhere: no peer is running here"),
    (
        ["session", "init", "authority", "--from", "spec.toml"],
        "authority/session.toml: there is a session in this directory already",
    ),
    (["session", "init", "new", "--from", "nowhere.toml"], "nowhere.toml: no such file"),
    (["session", "init", "new", "--from", "spec.toml", "--set", "nodes=none"], "--set nodes=none: "),
    (
        ["session", "init", "new", "--from", "spec.toml", "--set", 'session.until="mse <= 0.1"'],
        "spec.toml: session.until is 'mse <= 0.1', but models are measured by accuracy and loss",
    ),
    (["session", "init", "new", "--from", "spec.toml", "--model", "nothing"], "nothing: No such file"),
    (["session", "invite", "authority", "nonsense"], "is not a public key"),
    (["session", "invite", "nowhere", "KEY"], "nowhere/"),
    (["session", "invite", "authority", "KEY", "--days", "-3"], "--days -3: must be above 0 and at most"),
    (["session", "invite", "authority", "KEY", "--days", "nan"], "--days nan: must be above 0 and at most"),
    (["session", "invite", "authority", "KEY", "--days", "inf"], "--days inf: must be above 0 and at most"),
    (["session", "renew", "authority", "berlin", "--days", "1e9"], "--days 1e+09: must be above 0 and at"),
    (["session", "renew", "authority", "berlin", "--days", "18251"], "must be above 0 and at most 18250"),
    (["session", "list", "nowhere"], "nowhere/authority.key: No such file or directory"),
    (["session", "renew", "authority", "berln"], "(did you mean 'berlin'?)"),
    (["session", "renew", "authority", "berlin", "--out", "no/node.crt"], "no: no such folder"),
    (["session", "remove", "authority", "rome"], "'rome' is neither a node's name"),
    (["session", "revoke", "authority", "rome"], "'rome' is neither a node's name"),
    (["session", "status", "nowhere"], "nowhere: not a peer's home"),
    (["session", "suspects", "home"], "start it with 2>> home/log.jsonl, or give the file"),
    (["fleet", "run", "spec.toml", "--nodes", "0"], "0 is not in the range x>=1"),
    (
        ["fleet", "run", "spec.toml", "--nodes", "2", "--set", "session.start_with=3"],
        "spec.toml: session.start_with is 3, but must be at most nodes (2)",
    ),
    (["fleet", "run", "spec.toml", "--seconds", "soon"], "'soon' is not a valid float"),
    (["fleet", "run", "spec.toml", "--churn", "0"], "0.0 is not in the range x>0"),
    (["fleet", "run", "spec.toml", "--attackers", "2:smile"], "smile"),
    (["fleet", "run", "spec.toml", "--out", "home"], "home: not empty, and not of an earlier fleet"),
    (["export", "nowhere", "-o", "x.safetensors"], "nowhere: neither a run with a model"),
    (["export", "home", "-o", "x.pt"], "x.pt: models are written as safetensors"),
    (["predict", "nothing.safetensors", "--csv", "x.csv"], "nothing.safetensors: No such file"),
    (["doctor", "--fix"], "No such option '--fix'"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """An authority with one node, and a home that has nothing but a key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    plexus("session", "init", "authority", "--from", "spec.toml")
    plexus("session", "invite", "authority", new_key(tmp_path, "machine"), "--name", "berlin")
    new_key(tmp_path, "home")
    (tmp_path / "home").chmod(0o700)
    (tmp_path / "damaged").mkdir(mode=0o700)
    (tmp_path / "damaged" / "node.key").write_text("not a key\n")
    capsys.readouterr()
    return tmp_path


def plexus(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert isinstance(end.value.code, int)
    return end.value.code


def files(place: Path) -> dict[str, bytes]:
    """All that is there, but for the lock of a home."""
    found = [path for path in place.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    ("words", "complaint"), WRONG, ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else ""
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_touched(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    key = new_key(place, "other")
    before = files(place)
    assert plexus(*(key if word == "KEY" else word for word in words)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert complaint in said.err.splitlines()[-1]
    assert said.err.startswith("plexus: ") == (said.err.count("\n") == 1), said.err
    assert files(place) == before


def test_every_command_for_operators_is_tried() -> None:
    needed = {path for path in COMMANDS if path.split()[0] in OPERATING} - {"node", "session", "fleet"}
    tried = {
        " ".join(words[:2]) if words[0] in ("node", "session", "fleet") else words[0] for words, _ in WRONG
    }
    assert tried == needed
