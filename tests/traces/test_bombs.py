"""Small files that claim to be large: refused in words, by a process that may not have much memory."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plexus.traces.readers.plain_pickle import loads_plain

READ = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
from plexus.errors import PlexusError
from plexus.learn.tasks.writers import read_idx
from plexus.learn.tasks.writers import read_written_digits
from plexus.traces.readers.availability import read_availability
from plexus.traces.readers.devices import read_devices
from plexus.traces.readers.latency import read_latency
reader, path = globals()[sys.argv[1]], Path(sys.argv[2])
try:
    reader(path)
except PlexusError as error:
    print(error)
"""


def refusal(reader: str, path: Path) -> str:
    """What is said of the file; it must come to an end, within 2 GiB of memory."""
    done = subprocess.run(
        [sys.executable, "-c", READ, reader, str(path)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def within_each_other(begin: bytes, double: Callable[[bytes], bytes], levels: int = 60) -> bytes:
    """A thing twice in a thing twice in a thing …; the last of them is number `levels`."""
    program = begin + b"\x94"
    for level in range(levels):
        program += b"0" + double(b"h" + bytes([level])) + b"\x94"
    return program + b"0"


LISTS = within_each_other(b"]", lambda get: b"](" + get + get + b"e")
TUPLES = within_each_other(b"K\x01", lambda get: get + get + b"\x86")

PICKLES = {
    "a memo of gigabytes": (b"\x80\x02]r" + struct.pack("<I", 2**31 - 1) + b".", "out of turn"),
    "the same, as text": (b"(lp2000000000\n.", "out of turn"),
    "lists within lists": (b"\x80\x04" + LISTS + b"}K\x01h\x3cs.", "without end"),
    "a list that holds itself": (b"\x80\x02]q\x00h\x00a.", "without end"),
    "a hidden list": (b"\x80\x02](1q\x00h\x00a.", "without end"),
    "tuples as a key": (b"\x80\x04" + TUPLES + b"}h\x3cK\x01s.", "has TUPLE2 in it"),
    "a copy of a copy": (b"\x80\x02]2a.", "has DUP in it"),
    "a buffer": (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "bytes in a bytearray8, but only 1"),
    "a text": (b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b".", "in a unicodestring8, but only 1"),
    "a frame": (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"].", "truncated"),
    "a long number": (b"\x80\x02\x8b" + struct.pack("<i", 2**20) + bytes(2**20) + b".", "LONG4"),
    "a number as text": (b"(lI" + b"9" * 100_000 + b"\na.", "not a readable pickle"),
    "a shorter one": (b"(lI" + b"9" * 20 + b"\na.", "more than 64 bits"),
    "numbers of one hash": (pickle.dumps({9 * (2**61 - 1): {}}, protocol=2), "more than 64 bits"),
    "nothing but lists": (b"\x80\x02(" + b"]" * 50_000_000 + b"l.", "holds more than 4 GiB"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_asks_for_too_much_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    content, reason = PICKLES[name]
    path.write_bytes(content)
    said = refusal("read_devices", path)
    assert said.startswith(f"{path}: this ")
    assert reason in said


def test_what_several_devices_have_in_common_may_be_one_list() -> None:
    never: list[int] = []
    held = {number: {"active": never, "inactive": never} for number in range(1000)}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert loads_plain(pickle.dumps(held, protocol)) == held
    numbers = [0, 1, -1, 2**31, -(2**63), 2**63 - 1, 0.5, -1.7976931348623157e308, True, None, "é"]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert loads_plain(pickle.dumps(numbers, protocol)) == numbers


def npy(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + bytes(64)


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


PAIRS = "source,destination,ms\n" + "".join(f"a{n},b{n},1\n" for n in range(20_000))
FILES = {
    "a matrix": ("read_availability", "trace", npy((10**6, 10**6))),
    "a matrix of nothing": ("read_availability", "trace", npy((10**6, 10**6), "|S0")),
    "deep JSON": ("read_devices", "trace", b"[" * 10**6),
    "many cities": ("read_latency", "trace", PAIRS.encode()),
    "a gzipped file": ("read_idx", "x.gz", gzip.compress(bytes(1_200_000_000), 1)),
    "a gzipped file that claims it": (
        "read_idx",
        "x.gz",
        gzip.compress(b"\0\0\x08\x03" + b"\x7f\xff\xff\xff" * 3),
    ),
    "an array": (
        "read_written_digits",
        "mnist_by_writer.npz",
        zipped("x_train.npy", npy((10**7, 28, 28), "|u1")),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_asks_for_too_much_is_refused(name: str, tmp_path: Path) -> None:
    reader, file, content = FILES[name]
    (tmp_path / file).write_bytes(content)
    is_folder = reader == "read_written_digits"
    said = refusal(reader, tmp_path if is_folder else tmp_path / file)
    assert said.startswith(str(tmp_path / file))


@pytest.mark.slow
def test_a_long_matrix_with_gaps_is_read(tmp_path: Path) -> None:
    """A gap is filled from the nearest day: not by looking at all pairs of days."""
    matrix = np.full((2_000_000, 1), np.nan, np.float32)
    matrix[5] = 1
    np.save(tmp_path / "trace.npy", matrix)
    assert refusal("read_availability", tmp_path / "trace.npy") == ""
