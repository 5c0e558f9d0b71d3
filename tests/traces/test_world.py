from pathlib import Path

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.traces.world import TracesSpec, build_world


def test_same_spec_and_seed_give_the_same_world():
    one, two = (build_world(TracesSpec(), 50, 3, Path()) for _ in range(2))
    assert one.devices == two.devices
    assert np.array_equal(one.availability.packed.rows, two.availability.packed.rows)
    assert np.array_equal(one.latency.matrix_s, two.latency.matrix_s)
    assert build_world(TracesSpec(), 50, 4, Path()).devices != one.devices


def test_uniform_values_replace_those_of_every_device():
    spec = TracesSpec(uniform_up_kbps=8000.0, uniform_compute_ms_per_sample=50.0)
    world = build_world(spec, 20, 1, Path())
    assert {d.up_bytes_per_s for d in world.devices} == {1_000_000.0}
    assert {d.compute_ms_per_sample for d in world.devices} == {50.0}
    assert len({d.down_bytes_per_s for d in world.devices}) == 20


def test_none_keeps_everybody_online():
    world = build_world(TracesSpec(availability="none"), 5, 1, Path())
    assert [list(world.availability.toggles(i)) for i in range(5)] == [[(0.0, True)]] * 5
    assert world.availability.online_at(1e9).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("graceful_share", 1.5), ("uniform_up_kbps", 0.0), ("uniform_compute_ms_per_sample", -1.0)],
)
def test_an_impossible_value_is_named(field, value):
    with pytest.raises(PlexusError, match=field):
        TracesSpec(**{field: value})
