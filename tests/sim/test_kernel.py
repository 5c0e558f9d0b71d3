"""Virtual time: order, ties, cancelling, and a digest that notices every difference."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.sim.kernel import Kernel


def recording_kernel() -> tuple[Kernel, list[tuple[float, int, str]]]:
    log: list[tuple[float, int, str]] = []
    kernel = Kernel(lambda target, event: log.append((kernel.now, target, event)))
    return kernel, log


@given(st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0])))
def test_events_come_in_order_of_time_and_equal_times_first_in_first_out(times: list[float]) -> None:
    kernel, log = recording_kernel()
    for number, time_s in enumerate(times):
        kernel.at(time_s, number, "event")
    kernel.run(10.0)
    assert [target for _, target, _ in log] == [
        number for _, number in sorted((time_s, number) for number, time_s in enumerate(times))
    ]


def test_a_cancelled_event_is_not_delivered_and_leaves_no_trace() -> None:
    kernel, log = recording_kernel()
    kernel.at(1.0, 0, "kept")
    kernel.cancel(kernel.at(2.0, 0, "cancelled"))
    kernel.at(3.0, 0, "kept too")
    kernel.run(10.0)
    assert [event for _, _, event in log] == ["kept", "kept too"]
    assert kernel.delivered == 2


def test_run_stops_at_its_limit_and_goes_on_from_there() -> None:
    kernel, log = recording_kernel()
    for time_s in (1.0, 2.0, 3.0):
        kernel.at(time_s, 0, "event")
    kernel.run(2.0)
    assert (len(log), kernel.now) == (2, 2.0)
    kernel.run(2.5)
    assert kernel.now == 2.5
    kernel.run(9.0)
    assert (len(log), kernel.now) == (3, 9.0)


def test_spreading_one_event_equals_scheduling_each() -> None:
    one, one_log = recording_kernel()
    many, many_log = recording_kernel()
    delays_s = {0: 0.3, 1: 0.1, 3: 0.1}
    one.spread(list(delays_s), list(delays_s.values()), "news")
    for target, delay_s in delays_s.items():
        many.at(delay_s, target, "news")
    one.run(1.0)
    many.run(1.0)
    assert one_log == many_log
    assert one.digest() == many.digest()


@given(
    st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 1.5, 2.0, 9.0]), st.booleans(), st.booleans()), max_size=20
    ),
    st.integers(1, 4),
)
def test_what_is_announced_is_in_the_digest_as_if_it_were_delivered(
    planned: list[tuple[float, bool, bool]], batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plexus.sim.kernel._DIGEST_BATCH", batch)
        patch.setattr("plexus.sim.kernel._MANY", 3)
        kernel, log = recording_kernel()
        plain, all_of_it = recording_kernel()
        times_s = np.array([time_s for time_s, *_ in planned])
        kernel.delays_s = lambda _, targets: times_s[targets]
        for target, (time_s, is_announced, is_handed_over) in enumerate(planned):
            plain.at(time_s, target, "news")
            if not is_announced:
                kernel.at(time_s, target, "news")
            else:
                token = kernel.announce(0, array("i", [target]))
                if is_handed_over:
                    kernel.hand_over(time_s, token, target, "news")
        for until_s in (1.0, 5.0):
            kernel.run(until_s)
            plain.run(until_s)
            assert (kernel.digest(), kernel.delivered) == (plain.digest(), plain.delivered)
    silent = {target for target, (_, announced, handed_over) in enumerate(planned) if announced > handed_over}
    assert log == [event for event in all_of_it if event[1] not in silent]


def test_the_digest_depends_on_time_target_and_order_but_not_on_when_it_is_asked_for() -> None:
    def digest(events: list[tuple[float, int]], asked_between: bool = False) -> str:
        kernel, _ = recording_kernel()
        for time_s, target in events:
            kernel.at(time_s, target, "event")
        if asked_between:
            kernel.run(1.0)
            kernel.digest()
            kernel.run(1.5)
            kernel.digest()
        kernel.run(9.0)
        return kernel.digest()

    base = digest([(1.0, 0), (2.0, 1)])
    assert base == digest([(1.0, 0), (2.0, 1)], asked_between=True)
    others = [digest([(1.0, 0), (2.5, 1)]), digest([(1.0, 1), (2.0, 0)]), digest([(2.0, 1), (1.0, 0)])]
    assert len({base, *others}) == 4
