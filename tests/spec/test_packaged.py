"""Specs that come with Plexus are found by name, wherever one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.spec.experiment import load_spec
from plexus.spec.toml import EXPERIMENTS

MINE = 'name = "mine"\nnodes = 5\nhours = 1\ntask = { name = "digits" }\n'


def test_a_spec_that_comes_with_plexus_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = tmp_path / "deeper"  # hints look around: others' tests are beside this one
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # of a run, say: no file
    (tmp_path / "quickstart.toml").write_text(MINE)
    assert load_spec("quickstart") == load_spec(EXPERIMENTS / "quickstart.toml")
    assert load_spec("quickstart", size="paper", seed=7).seed == 7
    (tmp_path / "quickstart").rmdir()
    (tmp_path / "quickstart").write_text(MINE)
    assert load_spec("quickstart").name == "mine", "what is there is what is meant"
    for path in ("./quickstart.toml", "quickstart.toml"):
        assert load_spec(path).name == "mine"
    with pytest.raises(PlexusError, match=r"^quikstart: no such file \(did you mean 'quickstart'\?\)"):
        load_spec("quikstart")
    with pytest.raises(PlexusError, match=r"^elsewhere/quickstart: no such file"):
        load_spec("elsewhere/quickstart")


def test_there_is_one_copy() -> None:
    assert (Path(__file__).parents[2] / "experiments").samefile(EXPERIMENTS)
