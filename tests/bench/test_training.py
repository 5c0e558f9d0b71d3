"""`plexus bench training` measures what it says; how fast, depends on the machine and is not tested."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from plexus.cli.bench import training
from plexus.errors import PlexusError


@pytest.mark.slow
def test_bench_training_prints_one_json_object() -> None:
    arguments = ["--engine", "stacked", "--clients", "4", "--repeats", "1", "--device", "cpu", "--json"]
    result = CliRunner().invoke(training, arguments, catch_exceptions=False)
    found = json.loads(result.output)
    assert found["ms_per_client"] > 0
    assert found["ratio_to_bare_loop"] > 0
    assert {k: found[k] for k in ("task", "engine", "device", "clients", "parameters")} == {
        "task": "digits", "engine": "stacked", "device": "cpu", "clients": 4, "parameters": 4810,
    }  # fmt: skip


@pytest.mark.slow
def test_bench_training_reads_well_and_needs_no_data_for_gn_lenet() -> None:
    arguments = ["--task", "cifar10", "--engine", "inline", "--clients", "1", "--repeats", "1",
                 "--random-data"]  # fmt: skip
    result = CliRunner().invoke(training, arguments, catch_exceptions=False)
    lines = dict(line.split(None, 1) for line in result.output.splitlines())
    assert lines["engine"] == "inline on cpu: asked for"
    assert lines["model"] == "cifar10, 85,354 parameters, 1 clients"


def test_random_data_is_for_cifar10_only() -> None:
    result = CliRunner().invoke(training, ["--task", "movielens", "--random-data"])
    assert isinstance(result.exception, PlexusError)
    assert "random data" in str(result.exception)
