"""Whatever bytes a reader is given, it reads them or refuses them by name: damaged files, and noise."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.readers import READERS, check

EXAMPLES = 80


@st.composite
def damaged(draw: st.DrawFn, valid: list[bytes]) -> bytes:
    """A valid file that was cut, changed, repeated or filled with something else."""
    data = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["change", "cut", "insert", "remove", "repeat"])):
            case "change" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=5))
            case "remove":
                del data[at : at + draw(st.integers(1, 8))]
            case "repeat":
                data[at:at] = data[: draw(st.integers(0, 40))]
    return bytes(data)


@pytest.mark.parametrize("name", READERS)
def test_what_is_valid_is_read(name: str, tmp_path: Path) -> None:
    for data in READERS[name].valid:
        READERS[name].read(data, tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_damage_and_noise_are_read_or_refused_by_name(name: str) -> None:
    @settings(max_examples=EXAMPLES)
    @given(data=damaged(READERS[name].valid) | st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
    def fuzz(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(name, data, Path(folder))

    fuzz()
