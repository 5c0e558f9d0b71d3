"""The files of models that runs, peers and fleets leave: safetensors with metadata, handled without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from plexus.errors import PlexusError
from plexus.files import named

MODEL_SUFFIX = ".safetensors"
FINAL_MODEL, BEST_MODEL = f"model-final{MODEL_SUFFIX}", f"model-best{MODEL_SUFFIX}"
_LENGTH_BYTES = 8
_METADATA = "__metadata__"

Data = bytes | memoryview


def joined(metadata: Mapping[str, str], *files: Data) -> bytes:
    """One file with the tensors of several, and with these metadata; the same bytes every time."""
    return b"".join(parts_of(metadata, *files))


def parts_of(metadata: Mapping[str, str], *files: Data) -> list[Data]:
    """What such a file consists of, in order, without a copy of the tensors.

    Where two have a tensor of the same name, the later one's is taken.
    """
    tensors: dict[str, tuple[dict[str, Any], Data]] = {}
    for data in files:
        header, start = _header(data)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[name] = entry, memoryview(data)[start + begin : start + end]
    # Wide types first, as safetensors does it: every tensor is where its type can be read in place.
    order = sorted(tensors, key=lambda name: (-_width(tensors[name][0]["dtype"]), name))
    new: dict[str, Any] = {_METADATA: dict(sorted(metadata.items()))}
    at = 0
    for name in order:
        entry, part = tensors[name]
        new[name] = {**entry, "data_offsets": [at, at + len(part)]}
        at += len(part)
    text = json.dumps(new, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return [len(text).to_bytes(_LENGTH_BYTES, "little"), text, *(tensors[name][1] for name in order)]


def metadata_of(path: Path) -> dict[str, str]:
    """What the file of a model says about itself."""
    try:
        with named(path), path.open("rb"), safe_open(path, framework="np") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise PlexusError(f"{path}: damaged, or not a safetensors file: {error}") from None


def is_better(value: float, path: Path) -> bool:
    """Whether a model that was measured is better than the one in a file, if there is one."""
    if not path.exists():
        return True
    about = metadata_of(path)
    before = float(about.get("value", "nan"))
    return not before >= value if about.get("higher_is_better") == "true" else not before <= value


def _header(data: Data) -> tuple[dict[str, Any], int]:
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(bytes(data[_LENGTH_BYTES:start]))
    header.pop(_METADATA, None)
    return header, start


def _width(dtype: str) -> int:
    """How many bits a number has, by the name of its type."""
    digits = "".join(each for each in dtype.partition("_")[0] if each.isdigit())
    return int(digits) if digits else 8  # BOOL
