"""Who else is told of a run's rows as they are recorded, beside the tables: TensorBoard, a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from plexus.runs.recorder import Listener
from plexus.runs.tensorboard import EventFile


@contextmanager
def trackers(out: Path, *, tensorboard: bool, json_lines: bool) -> Iterator[Listener | None]:
    """A listener that tells all of them, or None if nobody wants to know."""
    listeners: list[Listener] = []
    events = EventFile(out) if tensorboard else None
    if events is not None:
        listeners.append(events.row)
    if json_lines:
        listeners.append(_print_row)

    def tell(table: str, row: Mapping[str, Any]) -> None:
        for listener in listeners:
            listener(table, row)

    try:
        yield tell if listeners else None
    finally:
        if events is not None:
            events.close()


def _print_row(table: str, row: Mapping[str, Any]) -> None:
    click.echo(msgspec.json.encode({"table": table, **row}))
