"""Where the time of a round goes."""

from __future__ import annotations

from plexus.experiment.critical_path import CriticalPaths
from plexus.protocol.facts import AggregationCompleted, AggregatorChosen


def test_the_path_is_that_of_the_last_model_to_arrive() -> None:
    paths = CriticalPaths()

    def done(k: int) -> AggregationCompleted:
        return AggregationCompleted(round=k, model=None, models=2, participants=2, timed_out=True, waited_s=0)

    assert paths.on_fact(100.0, 9, done(1)) is None
    paths.arrived("train", 1, 9, 1, began_s=101.0, arrival_s=103.0)
    paths.arrived("train", 1, 9, 2, began_s=101.0, arrival_s=102.0)
    paths.training(2, 102.0)
    paths.training(1, 103.0)
    # Asked again for the same round by somebody else: of no interest any more.
    paths.arrived("train", 1, 7, 1, began_s=50.0, arrival_s=104.0)
    paths.trained(1, 103.0, 113.0)
    paths.trained(2, 102.0, 105.0)
    paths.arrived("aggregate", 2, 2, 8, began_s=106.0, arrival_s=107.0)
    paths.arrived("aggregate", 2, 1, 8, began_s=114.0, arrival_s=118.0)
    # Of an older round, and late: nobody waited for it.
    paths.arrived("aggregate", 1, 2, 8, began_s=118.0, arrival_s=119.0)
    path = paths.on_fact(120.0, 8, done(2))
    assert path is not None
    assert (path.participant, path.began_s) == (1, 100.0)
    assert (path.sampling_s, path.transfer_s) == (1 + 1, 2 + 4)
    assert (path.training_s, path.aggregation_s) == (10, 2)
    # An aggregator that trained as well has its own model at once.
    paths.training(8, 121.0)
    paths.trained(8, 121.0, 125.0)
    assert paths.on_fact(126.0, 8, AggregatorChosen(3, 8, 1)) is None
    path = paths.on_fact(126.0, 8, done(3))
    assert path is not None
    assert (path.participant, path.transfer_s, path.training_s) == (8, 0, 4)
