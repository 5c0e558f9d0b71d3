"""A progress bar for downloads, on terminals only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from plexus.data.fetch import Progress


@contextmanager
def bar(title: str, total: int, stream: TextIO) -> Iterator[Progress]:
    """A function that takes the number of bytes that are here and shows them."""
    if not stream.isatty():
        yield lambda have: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        "{task.description}",
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as shown:
        task = shown.add_task(title, total=total)
        yield lambda have: shown.update(task, completed=have)
