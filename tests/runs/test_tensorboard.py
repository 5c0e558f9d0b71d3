"""Event files: byte by byte, and as TensorBoard itself reads them."""

from __future__ import annotations

import json
import struct
import warnings
from pathlib import Path

import pytest

from plexus import cli
from plexus.runs.tensorboard import FILE, FOLDER, EventFile, crc32c, delete_events

ROW = {"simulated_s": 7200.0, "round": 300, "accuracy": 0.5, "loss": 2.0}


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        # The values of RFC 3720, appendix B.4, and the usual check value.
        (b"\0" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_the_checksum_is_castagnolis(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def records(content: bytes) -> list[bytes]:
    """The events of a file, lengths checked."""
    found = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        found.append(content[12 : 12 + length])
        content = content[12 + length + 4 :]
    return found


def test_a_row_is_one_event(tmp_path: Path) -> None:
    events = EventFile(tmp_path)
    assert list(tmp_path.iterdir()) == [], "nothing is written before the first row"
    events.row("evaluations", ROW)
    events.row("node_evaluations", ROW)  # a row a node is too much for a chart
    events.close()
    version, row = records((tmp_path / FOLDER / FILE).read_bytes())
    assert version == b"\x09" + struct.pack("<d", 0) + b"\x1a\x0dbrain.Event:2"
    head = b"\x09" + struct.pack("<d", 7200) + b"\x10\xac\x02"
    accuracy = b"\x0a\x13evaluation/accuracy\x15" + struct.pack("<f", 0.5)
    loss = b"\x0a\x0fevaluation/loss\x15" + struct.pack("<f", 2.0)
    summary = b"\x0a\x1a" + accuracy + b"\x0a\x16" + loss
    assert row == head + b"\x2a" + bytes([len(summary)]) + summary
    delete_events(tmp_path)
    assert list(tmp_path.iterdir()) == []


SPEC = """\
name = "seen"
nodes = 8
hours = 0.1
[protocol]
sample_size = 3
[task]
name = "digits"
[traces]
availability = "none"
[evaluation]
every_rounds = 2
"""


@pytest.mark.slow
def test_tensorboard_reads_what_a_run_wrote_and_a_pipe_gets_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seen.toml").write_text(SPEC)
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "seen.toml", "--out", "here", "-q", "--tensorboard", "--json-lines"])
    assert stop.value.code == 0
    *rows, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert result == json.loads(Path("here/result.json").read_text())
    evaluations = [row for row in rows if row["table"] == "evaluations"]
    assert len(evaluations) > 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        reader = accumulator.EventAccumulator("here/tensorboard")
        reader.Reload()
        read = reader.Scalars("evaluation/accuracy")
        tags = reader.Tags()["scalars"]
    assert [(each.step, each.wall_time) for each in read] == [
        (row["round"], row["simulated_s"]) for row in evaluations
    ]
    assert [each.value for each in read] == pytest.approx([row["accuracy"] for row in evaluations])
    assert {"evaluation/loss", "round/waited_s", "round/models", "online/online"} <= set(tags)
