"""What simulating tells about signatures: their bytes, and nothing else."""

from __future__ import annotations

from plexus.bench.protocol import bench_protocol

SIGNED = ["signed_views=true"]


def test_without_attackers_signed_views_cost_bytes_and_hardly_a_round() -> None:
    plain = bench_protocol(100, 2, churn=True)
    signed = bench_protocol(100, 2, churn=True, overrides=SIGNED)
    assert signed.messages["view"].bytes > 2 * plain.messages["view"].bytes
    assert signed.messages["membership"].bytes > plain.messages["membership"].bytes
    assert signed.rounds > 0.8 * plain.rounds > 3
