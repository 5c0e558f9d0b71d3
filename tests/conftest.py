"""Options and settings that hold for all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import browser

__all__ = ["browser"]

# No test depends on how fast the machine is.
settings.register_profile("plexus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("plexus")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the conversations print into their scripts; review the diff",
    )
