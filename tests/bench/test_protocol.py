"""What simulating tells about signatures: their bytes, and nothing else."""

from __future__ import annotations

import pytest

from plexus.bench.protocol import bench_protocol
from plexus.protocol import roster, wire

SIGNED = ["signed_views=true"]


def test_without_attackers_signed_views_change_nothing_but_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bench_protocol(100, 0.5, churn=True)
    signed = bench_protocol(100, 0.5, churn=True, overrides=SIGNED)
    assert signed.messages["view"].bytes > 2 * plain.messages["view"].bytes
    assert signed.messages["membership"].bytes > plain.messages["membership"].bytes
    monkeypatch.setattr(wire, "proofs_bytes", lambda known: 0)
    monkeypatch.setattr(roster, "PROOF_BYTES", 0)
    weightless = bench_protocol(100, 0.5, churn=True, overrides=SIGNED)
    assert (weightless.digest, weightless.messages) == (plain.digest, plain.messages)
    assert weightless.rounds == plain.rounds > 3
