"""The log of a peer: a line for everything, but nobody can make it fill the disk or stop the peer."""

from __future__ import annotations

import os
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from plexus.cli.session import session
from plexus.errors import PlexusError
from plexus.live.operator import log as logs
from plexus.live.operator.log import ALIKE, LOG_FILE, MAX_KINDS, MAX_KINDS_OF_PEER, Log, Refusals, suspects
from plexus.live.operator.status import FactObserver
from plexus.live.transport.limits import LiveRoster
from plexus.protocol.facts import Refused


def lines(stream: StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


def test_of_warnings_that_are_alike_some_are_written_and_the_rest_counted() -> None:
    log = Log(stream := StringIO())
    for number in range(ALIKE + 12):
        log.warning("no_link", remote=f"192.0.2.{number}", reason="it presented no certificate")
    log.warning("no_link", reason="the certificate has expired")
    said = lines(stream)
    assert [line["reason"] for line in said] == [
        *["it presented no certificate"] * ALIKE,
        "the certificate has expired",
    ]
    log.settle(at_end=True)
    [last] = lines(stream)[len(said) :]
    del last["time"]
    assert last == {
        "level": "warning",
        "event": "no_link",
        "reason": "it presented no certificate",
        "more": "12 more like this in 0 s",
    }


def test_when_the_time_is_over_warnings_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(stream := StringIO())
    for _ in range(ALIKE + 1):
        log.warning("no_link", reason="noise")
    log.settle()
    assert len(lines(stream)) == ALIKE, "too early for a summary"
    monkeypatch.setattr(logs, "PERIOD_S", 0.0)
    log.warning("no_link", reason="noise")
    assert [line.get("more") for line in lines(stream)[ALIKE:]] == ["1 more like this in 0 s", None]


def test_reasons_that_others_think_up_are_of_one_kind_when_they_are_many() -> None:
    log = Log(stream := StringIO())
    for number in range(MAX_KINDS + ALIKE + 30):
        log.warning("no_link", reason=f"reason {number}")
    log.settle(at_end=True)
    said = lines(stream)
    assert len(said) == MAX_KINDS + ALIKE + 1
    assert said[-1]["reason"] == "other reasons"
    assert said[-1]["more"].startswith("30 more like this")


def test_whatever_a_member_says_its_lines_are_few_and_those_about_others_are_written(tmp_path: Path) -> None:
    liar, clumsy = b"l" * 16, b"c" * 16
    with (tmp_path / LOG_FILE).open("w") as stream:
        log = Log(stream)
        roster = LiveRoster(b"s" * 16, b"m" * 16, 10)
        observer = FactObserver(roster, log, 0)
        for number in range(1000):
            observer.fact(Refused(roster.number(liar), "message", f"reason {number}"))
        for _ in range(ALIKE + 1):
            observer.fact(Refused(roster.number(clumsy), "message", "it is no message"))
        log.settle(at_end=True)
    assert len((tmp_path / LOG_FILE).read_text().splitlines()) == MAX_KINDS_OF_PEER + ALIKE + 1 + ALIKE + 1
    assert observer.refused.total() == 1000 + ALIKE + 1
    assert sum(each.times for each in suspects([tmp_path]) if each.node == liar.hex()[:12]) == 1000
    assert Refusals(clumsy.hex()[:12], "it is no message", ALIKE + 1, [str(tmp_path)]) in suspects([tmp_path])


def test_whom_the_peer_cannot_reach_does_not_fill_the_log_nor_take_the_place_of_warnings() -> None:
    log = Log(stream := StringIO())
    for number in range(MAX_KINDS + 20):
        for _ in range(ALIKE + 1):
            log.info("no_link", dialled=True, reason=f"peer {number} cannot be reached")
    log.warning("no_link", dialled=False, reason="it presented no certificate")
    said = lines(stream)
    assert len(said) == MAX_KINDS * ALIKE + ALIKE + 1
    assert said[-1]["reason"] == "it presented no certificate"


def test_what_the_peer_itself_does_is_all_written_and_errors_are_all_counted() -> None:
    log = Log(stream := StringIO())
    for number in range(100):
        log.info("TrainingStarted", round=number)
        log.exception("failure", where="somewhere")
    assert sum(line["event"] == "TrainingStarted" for line in lines(stream)) == 100
    assert log.errors == 100


def test_a_log_that_cannot_be_written_does_not_disturb_the_peer() -> None:
    log = Log(open("/dev/full", "w"))  # noqa: SIM115
    log.warning("something")
    log.info("something else")
    assert (log.lost, log.errors) == (2, 0)
    with suppress(OSError):
        log._stream.close()


@pytest.mark.timeout(20)
def test_a_reader_that_has_stopped_to_read_does_not_stop_the_peer() -> None:
    """A pager, or Ctrl-S in a terminal."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        log, count = Log(writer), 0
        while not log.lost:
            log.info("holds", number=count)
            count += 1
        os.set_blocking(reading, False)
        read = [msgspec.json.decode(line)["number"] for line in reader.read().splitlines()]
        assert read == list(range(count - 1))
        log.info("again")
        assert (log.lost, msgspec.json.decode(reader.read())["event"]) == (1, "again")


def test_what_peers_refused_is_added_up_over_homes(tmp_path: Path) -> None:
    liar, clumsy = b"l" * 16, b"c" * 16
    for name, count in (("node-00", ALIKE + 7), ("node-01", 2)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / LOG_FILE).open("w") as stream:
            log = Log(stream)
            for _ in range(count):
                log.warning("Refused", peer=liar, what="a model", reason="it is too far")
            log.warning("Refused", peer=liar, what="message", reason="it is no message")
            log.settle(at_end=True)
            stream.write('{"event":"Refused","pe')
    with (tmp_path / "node-01" / LOG_FILE).open("a") as stream:
        stream.write("\nTraceback:\n")
        Log(stream).warning("Refused", peer=clumsy, what="message", reason="it is no message")
    homes = [str(tmp_path / "node-00"), str(tmp_path / "node-01")]
    expected = [
        Refusals(liar.hex()[:12], "it is too far", ALIKE + 9, homes),
        Refusals(liar.hex()[:12], "it is no message", 2, homes),
        Refusals(clumsy.hex()[:12], "it is no message", 1, homes[1:]),
    ]
    assert suspects([tmp_path]) == expected
    assert suspects([tmp_path, tmp_path / "node-00"]) == expected, "none is counted twice"
    assert suspects([tmp_path / "node-00" / LOG_FILE])[0].times == ALIKE + 7
    shown = CliRunner().invoke(session, ["suspects", str(tmp_path)]).output
    assert shown.splitlines()[1].split()[:3] == [liar.hex()[:12], str(ALIKE + 9), "2"]
    told = CliRunner().invoke(session, ["suspects", str(tmp_path), "--json"]).output
    assert msgspec.json.decode(told)["suspects"][2] == msgspec.to_builtins(expected[2])


def test_where_there_is_no_log_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match=f"{tmp_path}: no log.jsonl of a peer"):
        suspects([tmp_path])
    (tmp_path / LOG_FILE).write_text("")
    assert "nobody" in CliRunner().invoke(session, ["suspects", str(tmp_path)]).output
