"""The checkers bite: without a safeguard, the storms find what it was for."""

from __future__ import annotations

import pytest

from tests.storm.mutations import MUTATIONS, Mutation, storm_without, table

STATED = table()


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.safeguard)
def test_the_storm_of_the_stated_seed_finds_that_the_safeguard_is_off(mutation: Mutation) -> None:
    seed, checker = STATED[mutation.safeguard]
    finding = storm_without(mutation, seed)
    assert finding is not None
    assert finding.invariant == checker


def test_the_table_lists_every_mutation_and_nothing_else() -> None:
    assert list(STATED) == [mutation.safeguard for mutation in MUTATIONS]
