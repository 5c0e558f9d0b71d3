"""Importing what a user already has, and the commands around it."""

import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from plexus.cli.data import data
from plexus.data import registry
from plexus.data.importing import import_dataset
from plexus.data.registry import DATASETS, REGISTRY, Dataset, File
from plexus.errors import PlexusError
from plexus.files import data_directory
from tests.data.conftest import CONTENT, MEMBERS, as_tar, as_zip, sha256

EVENTS = json.dumps({"1": [[0, "on"], [43200, "off"]]}).encode()


@pytest.fixture
def events(data_home):
    file = File("traces/events.json", len(EVENTS), (sha256(EVENTS),), "availability")
    return Dataset("events", "one phone", "none", "http://page", (file,))


@pytest.fixture
def run(monkeypatch, plain, events):
    """Run `plexus data ...` with two data sets of our own in the registry."""
    monkeypatch.setattr(registry, "REGISTRY", {"plain": plain, "events": events})
    monkeypatch.setattr(registry, "DATASETS", (plain, events))

    def _run(*arguments):
        result = CliRunner().invoke(data, [str(a) for a in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return _run


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_trace_is_checked_read_copied_and_described(run, tmp_path, data_home):
    source = tmp_path / "mine.json"
    source.write_bytes(EVENTS)
    printed = run("import", "events", source)
    assert f"events imported: {data_home / 'traces/events.json'}" in printed
    assert "Availability of 1 device\n" in printed
    assert "50.0 % on average" in printed
    assert (data_home / "traces/events.json").read_bytes() == EVENTS
    assert files_in(data_home) == ["traces/events.json"]


def test_another_checksum_is_refused_unless_asked(events, tmp_path, data_home):
    source = tmp_path / "mine.json"
    source.write_bytes(EVENTS + b"\n")
    with pytest.raises(PlexusError, match=r"mine.json: wrong checksum sha256:"):
        import_dataset(events, source)
    assert not data_home.exists()
    import_dataset(events, source, unchecked=True)
    assert files_in(data_home) == ["traces/events.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not valid JSON"), (b"0,1\n1,0\n", "is a trace, but not of availability")],
)
def test_even_unchecked_it_must_be_readable(events, tmp_path, data_home, content, message):
    source = tmp_path / "mine.json"
    source.write_bytes(content)
    with pytest.raises(PlexusError, match=message):
        import_dataset(events, source, unchecked=True)
    assert not data_home.exists()


@pytest.mark.parametrize("place", ["a.csv", "packed/a.csv"])
def test_several_files_are_found_in_a_folder(packed, tmp_path, data_home, place):
    for name, content in MEMBERS.items():
        path = (tmp_path / "from" / place).with_name(name[4:])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    import_dataset(packed, tmp_path / "from")
    assert files_in(data_home) == ["packed/a.csv", "packed/b.csv"]


@pytest.mark.parametrize("pack", [as_tar, as_zip])
def test_the_official_archive_can_be_imported(packed, tmp_path, data_home, pack):
    (tmp_path / "archive").write_bytes(pack(MEMBERS))
    import_dataset(packed, tmp_path / "archive")
    assert files_in(data_home) == ["packed/a.csv", "packed/b.csv"]


def test_nothing_is_imported_unless_all_of_it_is_right(packed, tmp_path, data_home):
    (tmp_path / "a.csv").write_bytes(MEMBERS["top/a.csv"])
    with pytest.raises(PlexusError, match=r"there is no b.csv in this folder"):
        import_dataset(packed, tmp_path)
    (tmp_path / "b.csv").write_bytes(b"wrong")
    with pytest.raises(PlexusError, match=r"b.csv: wrong checksum"):
        import_dataset(packed, tmp_path)
    with pytest.raises(PlexusError, match=r"packed is 2 files; name the folder with a.csv, b.csv"):
        import_dataset(packed, tmp_path / "a.csv")
    with pytest.raises(PlexusError, match="there is no such file or folder"):
        import_dataset(packed, tmp_path / "gone")
    assert not data_home.exists()


def test_a_folder_that_cannot_be_written_is_one_line(events, tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_bytes(EVENTS)
    (tmp_path / "occupied").write_bytes(b"")
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path / "occupied"))
    with pytest.raises(PlexusError, match="occupied"):
        import_dataset(events, tmp_path / "mine.json")


def test_fetch_list_and_info_as_a_user_meets_them(run, data_home):
    before = run("list")
    assert "plain   fetch   307 kB  a thing" in before
    assert "events  import" in before
    assert f"They are kept in {data_home}" in before
    first, last = run("fetch", "plain").splitlines()
    assert first.startswith("fetching plain: ") and last.startswith("plain fetched, 307 kB: ")
    assert run("fetch", "plain").startswith("plain is here already: ")
    assert "plain   here" in run("list")
    info = run("info", "plain")
    assert f"checksum  {sha256(CONTENT)}" in info
    assert "licence   none" in info
    (data_home / "folder/thing").write_bytes(b"x")
    assert "plain   differs" in run("list")
    assert "another file of that name" in run("info", "plain")


def test_info_of_a_trace_says_how_a_spec_names_it(run):
    info = run("info", "events")
    assert '[traces] availability = "data:traces/events.json"' in info
    assert "to get it: it derives from http://page; whoever has the file runs" in info


def test_an_unknown_name_lists_the_known_ones(run):
    with pytest.raises(PlexusError, match=r"data set 'plian' is not one of .*did you mean 'plain'\?"):
        run("fetch", "plian")


def test_the_registry_is_complete_and_consistent():
    assert len(REGISTRY) == len(DATASETS)
    paths = [file.path for dataset in DATASETS for file in dataset.files]
    assert len(set(paths)) == len(paths)
    for dataset in DATASETS:
        assert dataset.licence
        assert dataset.page.startswith("https://")
        for file in dataset.files:
            assert file.size > 0
            assert (dataset.archive is None) == (file.member is None)
            for checksum in file.checksums:
                kind, _, digits = checksum.partition(":")
                assert len(digits) == {"sha256": 64, "md5": 32}[kind]
                int(digits, 16)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"PLEXUS_DATA": "/x"}, "/x"),
        ({"PLEXUS_DATA": "~/x"}, "/home/me/x"),
        ({}, "/home/me/.local/share/plexus"),
        ({"XDG_DATA_HOME": "/share"}, "/share/plexus"),
    ],
)
def test_the_data_directory_is_the_named_one_or_the_platforms(monkeypatch, variables, wanted):
    for name in ("PLEXUS_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert str(data_directory()) == wanted


def test_two_forms_of_one_file_are_both_right(plain, data_home):
    either = replace(plain.files[0], checksums=("md5:" + "0" * 32, sha256(CONTENT)))
    either.place.parent.mkdir(parents=True)
    either.place.write_bytes(CONTENT)

    assert either.state == "here"
