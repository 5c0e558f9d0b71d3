"""Where the time of a round goes."""

from __future__ import annotations

import tracemalloc

from plexus.runs.critical_path import CriticalPaths


def test_the_path_is_that_of_the_last_model_to_arrive() -> None:
    paths = CriticalPaths()
    assert paths.phases(100.0, 9, 1) is None
    paths.completed(9, 1, 100.0)
    paths.arrived("train", 1, 9, 1, began_s=101.0, arrival_s=103.0)
    paths.arrived("train", 1, 9, 2, began_s=101.0, arrival_s=102.0)
    # Asked again for the same round by somebody else: of no interest any more.
    paths.arrived("train", 1, 7, 1, began_s=50.0, arrival_s=104.0)
    paths.trained(1, 1, 103.0, 113.0)
    paths.trained(2, 1, 102.0, 105.0)
    paths.arrived("aggregate", 2, 2, 8, began_s=106.0, arrival_s=107.0)
    paths.arrived("aggregate", 2, 1, 8, began_s=114.0, arrival_s=118.0)
    # Of an older round, and late: nobody waited for it.
    paths.arrived("aggregate", 1, 2, 8, began_s=118.0, arrival_s=119.0)
    assert paths.phases(120.0, 8, 2) == {
        "simulated_s": 120.0,
        "round": 2,
        "aggregator": 8,
        "participant": 1,
        "began_s": 100.0,
        "sampling_s": 1 + 1,
        "transfer_s": 2 + 4,
        "training_s": 10,
        "aggregation_s": 2,
    }
    paths.completed(8, 2, 120.0)
    # An aggregator that trained as well has its own model at once.
    paths.trained(8, 2, 121.0, 125.0)
    paths.arrived("aggregate", 3, 8, 8, began_s=126.0, arrival_s=126.0)
    path = paths.phases(126.0, 8, 3)
    assert path is not None
    assert (path["participant"], path["transfer_s"], path["training_s"]) == (8, 0, 4)


def test_what_leads_to_no_aggregation_is_forgotten() -> None:
    """Where all exchange models with each other, sessions of days have millions of transfers."""
    paths = CriticalPaths()

    def some(first: int) -> int:
        for number in range(first, first + 2000):
            paths.arrived("exchange", number, 1, 2, number, number + 1.0)
            paths.trained(2, number, number + 1.0, number + 2.0)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = some(0)
        assert some(2000) < before + 20_000
    finally:
        tracemalloc.stop()
