"""Random numbers are the same whether somebody keeps their source in memory or not."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from plexus.rng import BLOCK, RestingRandom

DRAWN = st.sampled_from([0, 1, 2, BLOCK // 2, BLOCK // 2 + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])


@given(st.integers(0, 2**64 - 1), st.lists(st.tuples(DRAWN, st.booleans()), max_size=8))
def test_a_random_that_rested_goes_on_where_it_was(seed: int, story: list[tuple[int, bool]]) -> None:
    plain, resting = Random(seed), RestingRandom(seed)
    for words, rests in story:
        assert resting.getrandbits(32 * words) == plain.getrandbits(32 * words)
        if rests:
            resting.rest()
    assert resting.sample(range(99), 9) == plain.sample(range(99), 9)
    resting.rest()
    resting.rest()
    assert (resting.random(), resting.choice("abc")) == (plain.random(), plain.choice("abc"))
