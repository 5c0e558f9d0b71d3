"""What simulating tells about signatures: their bytes, and nothing else; and about members that lie."""

from __future__ import annotations

import pytest

from plexus.bench.protocol import bench_protocol
from plexus.errors import PlexusError

SIGNED = ["signed_views=true"]


def test_without_attackers_signed_views_cost_bytes_and_hardly_a_round() -> None:
    plain = bench_protocol(100, 2, churn=True)
    signed = bench_protocol(100, 2, churn=True, overrides=SIGNED)
    assert signed.messages["view"].bytes > 2 * plain.messages["view"].bytes
    assert signed.messages["membership"].bytes > plain.messages["membership"].bytes
    assert signed.rounds > 0.8 * plain.rounds > 3


@pytest.mark.parametrize("late", [[], ["late_rounds=20", "success_fraction=0.5"]])
@pytest.mark.parametrize("behaviour", ["next-round", "newer-model"])
def test_one_member_that_speaks_of_newer_rounds_costs_hardly_a_round(behaviour: str, late: list[str]) -> None:
    """It was nine rounds of ten."""
    honest = bench_protocol(60, 0.4, churn=False, overrides=SIGNED + late)
    with_liar = bench_protocol(60, 0.4, churn=False, overrides=SIGNED + late, liar=behaviour)
    assert with_liar.rounds > 0.9 * honest.rounds > 20


def test_other_protocols_have_no_liars() -> None:
    with pytest.raises(PlexusError, match="--liar next-round: nodes that lie are of plexus, not of gossip"):
        bench_protocol(4, 0.1, churn=False, protocol="gossip", liar="next-round")
