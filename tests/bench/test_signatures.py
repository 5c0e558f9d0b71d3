"""`plexus bench signatures` measures what it says; how fast, depends on the machine and is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.bench.signatures import bench_signatures
from plexus.errors import PlexusError


def test_a_first_view_is_checked_and_what_a_fleet_spent_is_read_from_its_logs(tmp_path: Path) -> None:
    for node, (spent, cpu) in enumerate([(0.01, 1.0), (0.03, 3.0)]):
        (tmp_path / f"node-0{node}").mkdir()
        line = f'{{"event":"stopped","cpu_s":{cpu},"signatures_s":{spent}}}\n'
        (tmp_path / f"node-0{node}" / "log.jsonl").write_text('{"event":"online"}\n' + line)
    found = bench_signatures(20, tmp_path)
    assert found.fleet_share == pytest.approx(0.01)
    assert found.view_bytes > 20 * 106
    assert found.first_view_s > found.next_view_s
    with pytest.raises(PlexusError, match="no fleet that has ended"):
        bench_signatures(1, tmp_path / "node-00")
