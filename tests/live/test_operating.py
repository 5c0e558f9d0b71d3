"""What operators do to a session: list, renew, remove, revoke; back up and restore; upgrade node by node."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from plexus.live.identity.authority import Authority, load_list
from plexus.live.identity.keys import create_key, public_text
from plexus.live.state import STATE_FILE, read_state
from tests.live.homes import authority_public
from tests.live.test_course import SPEC, Course, course  # noqa: F401


@pytest.fixture
def authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    (tmp_path / "spec.toml").write_text(SPEC)
    assert plexus("session", "init", tmp_path / "authority", "--from", tmp_path / "spec.toml") == 0
    capsys.readouterr()
    return tmp_path / "authority"


def plexus(*words: object) -> int:
    from plexus.cli import main

    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def new_key(place: Path, name: str) -> str:
    (place / name).mkdir()
    return public_text(create_key(place / name / "node.key").public_key().public_bytes_raw())


def authority_key(authority: Path) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(authority_public(authority))


def listed(authority: Path) -> dict[str, str]:
    return {node.name: node.state for node in Authority.load(authority).nodes()}


def test_machines_have_names_and_the_list_says_what_became_of_them(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plexus("session", "list", authority) == 0
    assert capsys.readouterr().out == "nobody was invited yet\n"
    for name in ("berlin", "dresden", "essen"):
        words = ["session", "invite", authority, new_key(tmp_path, name), "--name", name, "--days", 20]
        assert plexus(*words, "--out", tmp_path / f"{name}.crt") == 0
    assert listed(authority) == {"berlin": "admitted", "dresden": "admitted", "essen": "admitted"}
    assert plexus("session", "remove", authority, "dresden") == 0
    assert plexus("session", "revoke", authority, "essen") == 0
    assert listed(authority) == {"berlin": "admitted", "dresden": "removed", "essen": "revoked"}
    assert plexus("session", "renew", authority, "dresden", "--out", tmp_path / "again.crt") == 0
    assert listed(authority)["dresden"] == "admitted", "who left in peace may come again"
    capsys.readouterr()
    assert plexus("session", "list", authority) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [[line[0], line[2], line[3]] for line in lines[1:]] == [
        ["berlin", "admitted", "20.0"],
        ["dresden", "admitted", "30.0"],
        ["essen", "revoked", "0.0"],
    ]
    assert plexus("session", "list", authority, "--json") == 0
    assert {node["name"] for node in json.loads(capsys.readouterr().out)["nodes"]} == set(listed(authority))


def test_another_name_for_a_machine_is_told(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, renamed = new_key(tmp_path, "machine"), "this node was berlin, and is bonn from now on\n"
    for name, said in (("berlin", ""), ("berlin", ""), ("bonn", renamed)):
        assert plexus("session", "invite", authority, key, "--name", name) == 0
        assert capsys.readouterr().err == said
    assert listed(authority) == {"bonn": "admitted"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["list", "nowhere"], "nowhere/authority.key: No such file or directory"),
        (["renew", "AUTHORITY", "berln"], "'berln' is neither a node's name (did you mean 'berlin'?), nor a"),
        (["renew", "AUTHORITY", "berlin", "--days", "0"], "--days 0: must be above 0 and at most 18250"),
        (["renew", "AUTHORITY", "0123456789abcdef"], "no certificate was issued to a node 0123456789abcdef"),
        (
            ["remove", "AUTHORITY", "rome"],
            "'rome' is neither a node's name, nor a public key, nor a node's id",
        ),
        (["remove", "AUTHORITY", "gone"], "has been revoked already: it is out for good"),
        (["revoke", "AUTHORITY", "gone"], "has been revoked already: it is out for good"),
        (["renew", "AUTHORITY", "gone"], "has been revoked: its owner has to delete its node.key"),
        (["invite", "AUTHORITY", "KEY", "--name", "7up"], "--name 7up: must consist of letters, digits"),
        (["invite", "AUTHORITY", "KEY", "--name", "berlin"], "--name berlin: that is node"),
    ],
)
def test_what_is_wrong_with_a_command_is_said_in_one_line(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    for name in ("berlin", "gone"):
        assert plexus("session", "invite", authority, new_key(tmp_path, name), "--name", name) == 0
    assert plexus("session", "revoke", authority, "gone") == 0
    capsys.readouterr()
    real = {"AUTHORITY": str(authority), "KEY": new_key(tmp_path, "other")}
    assert plexus("session", *(real.get(word, word) for word in words)) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.splitlines()[-1].count(complaint) == 1


def test_a_shorter_certificate_does_not_replace_a_longer_one_and_that_is_said(
    authority: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, out = new_key(tmp_path, "berlin"), tmp_path / "berlin.crt"
    renew = ["session", "renew", authority, "berlin", "--out", out, "--days"]

    def days_left() -> float:
        return Authority.load(authority).nodes()[0].days_left

    assert plexus("session", "invite", authority, key, "--name", "berlin", "--out", out) == 0
    assert plexus(*renew, 30) == 0
    assert capsys.readouterr().err == ""
    assert plexus(*renew, 5) == 0
    assert "good for 30.0 days, and a running peer keeps that one" in capsys.readouterr().err
    assert days_left() == 30.0
    assert plexus("session", "remove", authority, "berlin") == 0
    assert days_left() == 0.0
    assert plexus(*renew, 5) == 0
    assert capsys.readouterr().err == ""
    assert days_left() == 5.0, "what was taken back counts no more"


@pytest.mark.parametrize(
    ("file", "words", "complaint"),
    [
        ("names.toml", ["list", "AUTHORITY"], "names.toml: damaged: "),
        ("revoked.crl", ["list", "AUTHORITY"], "revoked.crl: holds no list in PEM, or a damaged one"),
        (
            "authority.crt",
            ["list", "AUTHORITY"],
            "authority.crt: holds no certificate in PEM, or a damaged one",
        ),
        ("issued", ["list", "AUTHORITY"], "issued: no such folder"),
        ("issued", ["invite", "AUTHORITY", "KEY", "--name", "new"], "issued: no such folder"),
        ("issued/", ["revoke", "AUTHORITY", "berlin"], "issued: has no certificate of node "),
        ("issued/", ["renew", "AUTHORITY", "berlin"], "issued: has no certificate of node "),
    ],
)
def test_what_is_damaged_or_gone_in_the_authoritys_folder_is_to_be_restored(
    authority: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    words: list[str],
    complaint: str,
) -> None:
    real = {"AUTHORITY": str(authority), "KEY": new_key(tmp_path, "berlin")}
    assert plexus("session", "invite", authority, real["KEY"], "--name", "berlin") == 0
    if (authority / file).is_dir():
        shutil.rmtree(authority / file)
        if file.endswith("/"):  # what it held, alone
            (authority / file).mkdir()
            assert listed(authority) == {"berlin": "admitted"}, "the list says so"
    else:
        (authority / file).write_bytes((authority / file).read_bytes()[:-30])
    capsys.readouterr()
    assert plexus("session", *(real.get(word, word) for word in words)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"plexus: {authority}/{complaint}")
    assert said.err.endswith("; restore it from the backup of this directory\n")
    assert said.err.count("\n") == 1


def test_an_invitation_that_is_refused_names_nobody(authority: Path, tmp_path: Path) -> None:
    key = new_key(tmp_path, "berlin")
    assert plexus("session", "invite", authority, key, "--name", "berlin") == 0
    assert plexus("session", "revoke", authority, "berlin") == 0
    assert plexus("session", "invite", authority, key, "--name", "new") == 2
    assert listed(authority) == {"berlin": "revoked"}


@pytest.mark.slow
def test_a_renewed_certificate_is_taken_over_by_a_running_peer(course: Course) -> None:  # noqa: F811
    course.found("rounds = 100000", "start_with = 2")
    for number in (0, 1):
        course.start(number)
    course.until(lambda: course.log(0, "AggregationCompleted") or course.log(1, "AggregationCompleted"))
    [node] = {line["node"][:12] for line in course.log(1, "listening")}
    course.plexus("session", "renew", "authority", node, "--days", 300, "--out", "n1/node.crt")
    course.until(lambda: course.log(1, "certificate_renewed"), 30)
    status = json.loads(course.plexus("node", "status", "--home", "n1", "--json").stdout)
    assert status["certificate_days_left"] > 299
    course.until(lambda: course.log(0, "admissions"), 30)
    (course.place / "n1" / "node.crt").write_text("damaged")
    course.until(lambda: course.log(1, "home_not_read"), 30)
    assert course.processes[1].poll() is None, "it goes on with the one it has"
    newest = load_list(course.place / "n0" / "revoked.crl", authority_key(course.place / "authority"))
    [until_s] = [each.until_s for key, each in newest.nodes.items() if key.hex().startswith(node)]
    assert until_s > time.time() + 299 * 86400, "the others know that it is good for longer"


@pytest.mark.slow
def test_a_peer_is_restored_from_a_backup_and_uses_no_counter_twice(course: Course) -> None:  # noqa: F811
    course.found("rounds = 100000", "start_with = 2")
    for number in range(3):
        course.start(number)
    course.until(lambda: course.log(2, "TrainingStarted"))
    course.plexus("node", "stop", "--home", "n2")
    shutil.copytree(course.place / "n2", course.place / "backup")
    backed_up = read_state(course.place / "backup" / STATE_FILE)
    course.start(2)  # since the backup it comes and goes twice
    course.until(lambda: read_state(course.place / "n2" / STATE_FILE).counter > backed_up.counter)
    course.plexus("node", "stop", "--home", "n2")
    newest = read_state(course.place / "n2" / STATE_FILE)
    assert newest.counter > backed_up.counter
    shutil.rmtree(course.place / "n2")
    shutil.copytree(course.place / "backup", course.place / "n2")
    before = len(course.log(2, "TrainingStarted"))
    course.start(2)
    course.until(lambda: len(course.log(2, "TrainingStarted")) > before + 3)
    until = time.monotonic() + 30
    while read_state(course.place / "n2" / STATE_FILE).counter <= newest.counter:
        assert time.monotonic() < until, "the others told it its counter"
        time.sleep(0.2)


@pytest.mark.slow
def test_a_running_fleet_is_upgraded_node_by_node(course: Course) -> None:  # noqa: F811
    """Peers of the version before are stopped, and started as those of this one: rounds go on with every
    mixture of the two, and nobody refuses anybody anything."""
    # Those before do not wait for a second one: who has gone on alone for long is far from the others.
    course.found(spec=SPEC.replace("start_delay_s = 0.5", "start_delay_s = 15.0"))

    def upgraded() -> int:
        return sum(len(course.log(number, "AggregationCompleted")) for number in range(3))

    def goes_on() -> None:
        before = upgraded()
        course.until(lambda: upgraded() > before + 5)

    for number in range(3):
        course.start(number, program="tests.live.older")
    course.until(lambda: any(len(line["sample"]) == 3 for line in course.log(0, "SampleDerived")))
    goes_on()
    for number in range(3):
        course.plexus("node", "stop", "--home", f"n{number}")
        course.start(number)
        course.until(lambda number=number: course.log(number, "online")[1:])  # type: ignore[misc]
        goes_on()
    for number in range(3):
        assert course.log(number, "Refused") == []
        assert course.log(number, "failure") == []
        assert [line for line in course.log(number, "no_link") if "version" in line["reason"]] == []
