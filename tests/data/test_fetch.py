"""Fetching against a server that cuts, lies and forgets."""

import errno
import resource
import shutil
import socket
from collections import namedtuple

import pytest
from msgspec.structs import replace

from plexus.data import fetch as download_module
from plexus.data.fetch import fetch
from plexus.errors import PlexusError
from tests.data.conftest import CONTENT, MEMBERS, as_tar, as_zip


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(download_module, "PAUSE_S", 0)


def get(dataset, **options):
    seen = []
    fetched = fetch(dataset, seen.append, **options)
    return fetched, seen


def leftovers(home):
    return sorted(p.name for p in home.rglob(".*"))


def test_a_file_is_fetched_checked_and_put_in_place(site, plain, data_home):
    fetched, seen = get(plain)
    assert fetched
    assert plain.files[0].place.read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert leftovers(data_home) == []


def test_what_is_here_is_not_fetched_again(site, plain):
    get(plain)
    site.ranges.clear()
    assert get(plain) == (False, [])
    assert site.ranges == []


def test_a_cut_connection_goes_on_where_it_ended(site, plain, data_home):
    site.cut_after = [100_000, 50_000]
    get(plain)
    assert plain.files[0].place.read_bytes() == CONTENT
    assert site.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(site, plain, data_home):
    site.cut_after = [100_000] + [0] * download_module.ATTEMPTS
    with pytest.raises(PlexusError, match=r"100,000 bytes are kept: run it again to go on from there"):
        get(plain)
    assert not plain.files[0].place.exists()
    site.ranges.clear()
    get(plain)
    assert site.ranges == ["bytes=100000-"]
    assert plain.files[0].place.read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(site, plain):
    site.knows_ranges = False
    site.cut_after = [100_000]
    get(plain)
    assert plain.files[0].place.read_bytes() == CONTENT


def test_a_server_that_hiccups_is_asked_again(site, plain):
    site.statuses = [503, 429, 500]
    get(plain)
    assert plain.files[0].place.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(site, plain, data_home):
    site.content = b"x" * len(CONTENT)
    with pytest.raises(PlexusError, match=r"wrong checksum sha256:.*, folder/thing has sha256:"):
        get(plain)
    assert not plain.files[0].place.exists()
    assert leftovers(data_home) == []


def test_the_beginning_of_another_file_is_thrown_away(site, plain, data_home):
    part = plain.files[0].place.with_name(".thing.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"something else")
    get(plain)
    assert plain.files[0].place.read_bytes() == CONTENT
    assert site.ranges == ["bytes=14-", None]


def test_a_beginning_that_is_too_long_is_thrown_away(site, plain, data_home):
    part = plain.files[0].place.with_name(".thing.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    get(plain)
    assert site.ranges == [None]


def test_a_file_of_another_size_is_refused_before_it_is_loaded(site, plain, data_home):
    site.content = CONTENT + b"more"
    with pytest.raises(PlexusError, match="has 307,204 bytes, not 307,200: it is another file"):
        get(plain)


def test_a_missing_page_is_one_line(site, plain):
    site.statuses = [404]
    with pytest.raises(PlexusError, match="the server answers 404 Not Found"):
        get(plain)


def test_an_existing_file_that_is_something_else_is_left_alone(site, plain):
    path = plain.files[0].place
    path.parent.mkdir(parents=True)
    path.write_bytes(b"precious")
    with pytest.raises(PlexusError, match=r"is not plain: its checksum differs; move it away, or replace"):
        get(plain)
    assert path.read_bytes() == b"precious"
    get(plain, force=True)
    assert path.read_bytes() == CONTENT


def test_a_disk_without_room_is_noticed_before_loading(site, plain, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 9, 1000))
    with pytest.raises(PlexusError, match=r"needs 307,200 bytes, but .* has only 1,000 left"):
        get(plain)
    assert site.ranges == []


def test_a_disk_that_fills_up_keeps_what_came(site, plain, data_home, monkeypatch):
    read, calls = download_module._read, []

    def fill_up(response):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return read(response)

    monkeypatch.setattr(download_module, "_read", fill_up)
    with pytest.raises(PlexusError, match="the disk is full; free some space and run it again"):
        get(plain)
    kept = plain.files[0].place.with_name(".thing.part").stat().st_size
    assert 0 < kept < len(CONTENT)
    monkeypatch.undo()
    monkeypatch.setenv("PLEXUS_DATA", str(data_home))
    get(plain)
    assert site.ranges[-1] == f"bytes={kept}-"
    assert plain.files[0].place.read_bytes() == CONTENT


def test_without_a_network_it_says_what_to_do(plain, data_home):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
    nowhere = replace(plain, files=(replace(plain.files[0], url=url),))
    with pytest.raises(PlexusError) as caught:
        get(nowhere)
    assert str(caught.value).startswith("cannot reach 127.0.0.1 (")
    assert f"without a network: get {url} on any machine" in str(caught.value)
    assert "`plexus data import plain PATH`" in str(caught.value)
    assert not data_home.exists()


def test_what_has_no_address_says_so_and_takes_a_mirror(site, plain):
    orphan = replace(plain, files=(replace(plain.files[0], url=None),))
    with pytest.raises(PlexusError, match=r"plain cannot be fetched, no address is known: it derives from"):
        get(orphan)
    get(orphan, mirror=site.url)
    assert plain.files[0].place.read_bytes() == CONTENT


@pytest.mark.parametrize("pack", [as_tar, as_zip])
def test_members_of_an_archive_are_checked_and_put_in_place(site, packed, data_home, pack):
    site.content = pack({**MEMBERS, "top/other": b"not wanted", "../outside": b"evil"})
    get(packed)
    found = {p.name: p.read_bytes() for p in data_home.rglob("*") if p.is_file()}
    assert found == {"a.csv": MEMBERS["top/a.csv"], "b.csv": MEMBERS["top/b.csv"]}
    assert get(packed) == (False, [])


@pytest.mark.parametrize("pack", [as_tar, as_zip])
def test_a_wrong_member_leaves_nothing(site, packed, data_home, pack):
    site.content = pack({"top/a.csv": MEMBERS["top/a.csv"], "top/b.csv": b"wrong"})
    with pytest.raises(PlexusError, match=r"top/b.csv: wrong checksum"):
        get(packed)
    assert [p for p in data_home.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("pack", [as_tar, as_zip])
def test_a_member_that_is_much_larger_than_known_is_refused_half_way(site, packed, data_home, pack):
    """A few kilobytes of archive can be gigabytes on the disk."""
    site.content = pack({"top/a.csv": MEMBERS["top/a.csv"], "top/b.csv": bytes(50_000_000)})
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, largest[1]))  # who writes more gets an error
    try:
        with pytest.raises(PlexusError, match=r"top/b.csv has more than 14,000 bytes, not 7,000"):
            get(packed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, largest)
    assert [p for p in data_home.rglob("*") if p.is_file()] == []


def test_an_archive_without_a_member_is_refused(site, packed, data_home):
    site.content = as_tar({"top/a.csv": MEMBERS["top/a.csv"]})
    with pytest.raises(PlexusError, match=r"there is no top/b.csv in it"):
        get(packed)
    assert [p for p in data_home.rglob("*") if p.is_file()] == []


def test_a_damaged_archive_is_refused(site, packed, data_home):
    site.content = as_tar(MEMBERS)[:-40]
    with pytest.raises(PlexusError, match=r"is damaged|no top/b.csv"):
        get(packed)
    assert [p for p in data_home.rglob("*") if p.is_file()] == []


def test_an_archive_that_was_complete_is_not_loaded_again(site, packed, data_home):
    site.content = as_tar(MEMBERS)
    data_home.mkdir()
    (data_home / ".packed.part").write_bytes(site.content)
    get(packed)
    assert site.ranges == [f"bytes={len(site.content)}-"]
    assert packed.files[1].place.read_bytes() == MEMBERS["top/b.csv"]


def test_a_server_that_does_not_say_the_length(site, plain):
    site.says_length = False
    get(plain)
    assert plain.files[0].place.read_bytes() == CONTENT
