"""The parameters: defaults that work, and refusals that say which value, why, and what is allowed."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.aggregation import models_needed
from plexus.protocol.parameters import PlexusParameters


def test_the_defaults_are_those_of_the_paper_where_it_has_any() -> None:
    parameters = PlexusParameters()
    assert (parameters.sample_size, parameters.success_fraction) == (13, 0.8)
    assert parameters.aggregation_timeout_s == 300.0
    assert parameters.advertise_to == 130
    assert models_needed(parameters.success_fraction, 13) == 10


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"sample_size": 0}, "sample_size is 0, but must be at least 1"),
        ({"success_fraction": 0.0}, "success_fraction is 0.0, but must be above 0 and at most 1"),
        ({"success_fraction": 1.01}, "success_fraction is 1.01, but must be above 0"),
        ({"success_fraction": math.nan}, "success_fraction is nan, but must be above 0"),
        ({"ping_timeout_s": 0.0}, "ping_timeout_s is 0.0, but must be a number of seconds above 0"),
        ({"ping_timeout_s": -1.0}, "ping_timeout_s is -1.0, but must be a number of seconds"),
        ({"ping_timeout_s": math.inf}, "ping_timeout_s is inf, but must be a number of seconds"),
        ({"aggregation_timeout_s": math.nan}, "aggregation_timeout_s is nan, but must be"),
        ({"ack_timeout_s": 0}, "ack_timeout_s is 0, but must be a number of seconds above 0"),
        ({"readvertise_s": 0.0}, "readvertise_s is 0.0, but must be"),
        ({"watchdog_s": -5.0}, "watchdog_s is -5.0, but must be"),
        ({"start_delay_s": -0.1}, "start_delay_s is -0.1, but must be a number of seconds, 0 or more"),
        ({"start_delay_s": math.inf}, "start_delay_s is inf, but must be"),
        (
            {"ack_timeout_s": 300.0},
            r"ack_timeout_s is 300.0, but must be greater than aggregation_timeout_s \(300\)",
        ),
        (
            {"aggregation_timeout_s": 600.0},
            r"ack_timeout_s is 450.0, but must be greater than aggregation_timeout_s \(600\)",
        ),
        ({"watchdog_s": 450.0}, r"watchdog_s is 450.0, but must be greater than ack_timeout_s \(450\)"),
        ({"advertise_size": 0}, "advertise_size is 0, but must be at least 1"),
    ],
)
def test_a_value_no_session_could_work_with_is_refused(wrong: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}") as refusal:
        PlexusParameters(**wrong)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


def test_a_misspelt_parameter_in_a_file_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="sample_sice"):
        msgspec.toml.decode(b"sample_sice = 5", type=PlexusParameters)


def test_the_smallest_values_allowed_are_allowed() -> None:
    PlexusParameters(
        sample_size=1,
        success_fraction=1.0,
        ping_timeout_s=0.001,
        aggregation_timeout_s=0.001,
        ack_timeout_s=0.002,
        watchdog_s=0.003,
        readvertise_s=0.001,
        start_delay_s=0.0,
        advertise_size=1,
    )


def test_p_is_ten_samples_unless_it_is_given() -> None:
    assert PlexusParameters(sample_size=7).advertise_to == 70
    assert PlexusParameters(sample_size=7, advertise_size=3).advertise_to == 3


@given(st.integers(1, 100), st.integers(0, 2000))
def test_models_needed_is_the_floor_of_the_exact_product_and_never_zero(
    percent: int, participants: int
) -> None:
    """0.29 · 100 is 28.999… in binary, but 29 models are meant."""
    needed = models_needed(percent / 100, participants)
    assert needed == max(1, math.floor(Fraction(percent, 100) * participants))
    assert needed <= max(1, participants)
