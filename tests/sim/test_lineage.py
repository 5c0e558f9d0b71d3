"""Whose work is behind the final model: small cases worked out by hand."""

from __future__ import annotations

from typing import Any

from plexus.protocol.api import Change
from plexus.protocol.facts import AggregationCompleted
from plexus.runs.result import Cut, Lineage, Used
from plexus.sim.lineage import TracedModels, WhoseWork
from plexus.sim.session import SymbolicModels


class Rounds:
    """Rounds of a session, as somebody says that they went."""

    def __init__(self) -> None:
        symbols = SymbolicModels(1000)
        self.models = TracedModels(symbols)
        self.initial = symbols.initial()
        self.finished = [0] * 10

    def trained(self, base: Any, *nodes: int) -> list[Any]:
        for node in nodes:
            self.finished[node] += 1
        return [self.models.train(base, node, 1) for node in nodes]

    def aggregated(
        self, round: int, aggregator: int, models: list[Any], *changes: Change, at_s: float = 0.0
    ) -> Any:
        model = self.models.mean(models, [1] * len(models), changes, [1] * len(changes))
        fact = AggregationCompleted(
            round=round,
            ordinal=round,
            model=model,
            models=len(models),
            late=len(changes),
            participants=3,
            timed_out=False,
            waited_s=1.0,
        )
        self.models.on_fact(at_s, aggregator, fact)
        return model

    def whose(self) -> WhoseWork:
        """On node i a training takes 10 - i seconds: the first one is the slowest tenth."""
        return self.models.whose(self.finished, [10.0 - node for node in range(10)])


def test_without_a_round_nothing_is_used() -> None:
    session = Rounds()
    assert session.whose() == ([0] * 10, [0] * 10, Used(None, 0, None, None), Lineage(0, 0, 0, 0))
    session.trained(session.initial, 0, 9)
    assert session.whose() == ([0] * 10, [0] * 10, Used(0.0, 2, 0.0, 0.0), Lineage(0, 0, 0, 0))


def test_what_came_too_late_for_a_round_is_not_used() -> None:
    session = Rounds()
    late, *others = session.trained(session.initial, 0, 1, 9)
    two = session.aggregated(2, 5, others)
    later = session.trained(two, 0, 9)
    three = session.aggregated(3, 5, later)
    session.trained(three, 8)  # on its way when the session ends
    assert late is not None
    assert session.whose() == (
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 2],
        [0] * 10,
        Used(share=4 / 6, never_used_nodes=1, slowest_tenth_share=1 / 2, fastest_half_share=2 / 3),
        Lineage(trainings=4, forks=0, longest_fork_rounds=0, duplicate_aggregators=0),
    )


def test_two_aggregators_of_a_round_whose_models_meet_again_are_no_fork() -> None:
    session = Rounds()
    models = session.trained(session.initial, 1, 2, 3)
    one, other = session.aggregated(2, 4, models[:2]), session.aggregated(2, 5, models[1:])
    session.aggregated(3, 4, session.trained(one, 6) + session.trained(other, 7))
    found = session.whose()
    assert found.lineage == Lineage(trainings=5, forks=0, longest_fork_rounds=0, duplicate_aggregators=1)
    assert found.used.share == 1.0, "a training behind both is one training"


def test_a_fork_ends_with_what_was_made_from_it() -> None:
    """Node 5 goes on by itself for three rounds, and takes up what node 6 made in one; all is lost."""
    session = Rounds()
    first = session.trained(session.initial, 0, 1, 2)
    line = session.aggregated(2, 4, first[:1])
    fork = session.aggregated(2, 5, first[1:2])
    brief = session.aggregated(2, 6, first[2:])
    line = session.aggregated(3, 4, session.trained(line, 7))
    fork = session.aggregated(3, 5, session.trained(fork, 8))
    fork = session.aggregated(4, 5, session.trained(fork, 8) + session.trained(brief, 9))
    line = session.aggregated(4, 4, session.trained(line, 7))
    assert session.whose().lineage.forks == 1, "the first aggregate of round 4 stands for it"
    session.aggregated(5, 4, session.trained(line, 7))
    assert session.whose() == (
        [1, 0, 0, 0, 0, 0, 0, 3, 0, 0],
        [0] * 10,
        Used(share=4 / 9, never_used_nodes=4, slowest_tenth_share=1.0, fastest_half_share=3 / 6),
        Lineage(trainings=4, forks=2, longest_fork_rounds=3, duplicate_aggregators=3),
    )


def test_a_merge_that_is_asked_for_again_is_noted_once() -> None:
    class Remembering(SymbolicModels):
        known: Any = None

        def merge(self, models: Any, weights: Any) -> Any:
            self.known = self.known or super().merge(models, weights)
            return self.known

    session = Rounds()
    session.models = TracedModels(Remembering(1000))
    parts = session.trained(session.initial, 0, 1)
    merged = session.models.merge(parts, [1, 1])
    assert session.models.merge(parts, [1, 1]) is merged
    session.aggregated(2, 4, session.trained(merged, 2))
    assert session.whose().trainings_used == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_a_change_in_a_later_round_is_used_and_late() -> None:
    session = Rounds()
    late, *others = session.trained(session.initial, 0, 1, 9)
    two = session.aggregated(2, 5, others)
    three = session.aggregated(3, 5, session.trained(two, 1), Change(late, session.initial))
    assert session.whose() == (
        [1, 2, 0, 0, 0, 0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        Used(1.0, 0, slowest_tenth_share=1.0, fastest_half_share=1.0, late=1),
        Lineage(trainings=4, forks=0, longest_fork_rounds=0, duplicate_aggregators=0),
    )
    unused = session.trained(three, 3)
    session.aggregated(4, 5, session.trained(three, 4), Change(late, session.initial))
    session.aggregated(4, 6, session.trained(three, 5), Change(unused[0], three))
    found = session.whose()
    assert found.used.late == sum(found.late_used) == 1, (
        "what is in twice is one training, one of a fork is none"
    )
    assert found.trainings_used == [1, 2, 0, 0, 1, 0, 0, 0, 0, 1]


def test_what_a_change_began_with_stays_a_fork() -> None:
    """Node 8 trains a model of a fork; its change counts, but neither that model nor what led to it."""
    session = Rounds()
    first = session.trained(session.initial, 0, 1)
    line, fork = session.aggregated(2, 4, first[:1]), session.aggregated(2, 5, first[1:])
    (strayed,) = session.trained(fork, 8)
    session.aggregated(3, 4, session.trained(line, 7), Change(strayed, fork))
    found = session.whose()
    assert found.trainings_used == [1, 0, 0, 0, 0, 0, 0, 1, 1, 0]
    assert found.late_used == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert found.lineage == Lineage(trainings=3, forks=1, longest_fork_rounds=1, duplicate_aggregators=1)


def test_a_training_that_came_in_time_as_well_is_not_late() -> None:
    session = Rounds()
    trained = session.trained(session.initial, 0, 1)
    two = session.aggregated(2, 4, trained)
    session.aggregated(3, 4, session.trained(two, 2), Change(trained[0], session.initial))
    assert session.whose()[:2] == ([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0] * 10)


def test_of_a_cut_the_aggregates_of_both_sides_are_counted() -> None:
    """Nodes 5 and 6 are cut off from second 10 to 20. What they make is lost, but for one taken up after."""
    session = Rounds()
    line = session.aggregated(2, 4, session.trained(session.initial, 0), at_s=9)
    alone = session.aggregated(2, 5, session.trained(session.initial, 5), at_s=10)
    session.aggregated(3, 6, session.trained(alone, 5), at_s=20)
    line = session.aggregated(3, 4, session.trained(line, 1), at_s=12)
    lost = session.aggregated(3, 3, session.trained(line, 2), at_s=13)
    after = session.trained(line, 1) + session.trained(alone, 5)
    assert lost is not None
    session.aggregated(4, 5, after, at_s=21)
    cut = session.models.survivors(10.0, 20.0, {5, 6})
    assert cut == Cut(
        from_h=10 / 3600,
        to_h=20 / 3600,
        cut_nodes=2,
        cut_aggregates=2,
        cut_survived=1,
        others_aggregates=2,
        others_survived=1,
    )
    before = session.models.survivors(0.0, 9.5, {5})
    assert (before.cut_aggregates, before.others_aggregates, before.others_survived) == (0, 1, 1)
