"""Official file formats, on small files the tests write themselves."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.learn.tasks import data_folder
from plexus.learn.tasks.cifar10 import read_cifar10
from plexus.learn.tasks.leaf import celeba_images, femnist_images, read_leaf
from plexus.learn.tasks.movielens import read_ratings
from plexus.learn.tasks.writers import read_idx, read_written_digits
from tests.learn.files import write_cifar10, write_femnist, write_idx, write_leaf, write_qmnist

RNG = np.random.default_rng(1)


def test_cifar10_binary_batches(tmp_path: Path) -> None:
    images, labels = write_cifar10(tmp_path, per_batch=4)
    (train, train_labels), (test, test_labels) = read_cifar10(tmp_path)
    assert np.array_equal(np.concatenate([train, test]), images)
    assert np.array_equal(np.concatenate([train_labels, test_labels]), labels)
    assert (train.shape, test.shape) == ((20, 3, 32, 32), (4, 3, 32, 32))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"abc", "3 bytes, not a multiple"), (b"", "0 bytes"), (bytes([10] * 3073), "a label 10")],
)
def test_a_damaged_cifar10_batch_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    write_cifar10(tmp_path, per_batch=1)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(PlexusError, match=rf"data_batch_3.bin is not a CIFAR-10 batch: .*{message}"):
        read_cifar10(tmp_path)


def test_a_missing_cifar10_batch_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path, per_batch=1)
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(PlexusError, match=r"test_batch\.bin is missing"):
        read_cifar10(tmp_path)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("name", ["a-idx", "a-idx.gz"])
def test_idx_of_every_type_plain_and_gzipped(tmp_path: Path, dtype: str, name: str) -> None:
    array = (RNG.random((3, 4, 5)) * 100).astype(dtype)
    write_idx(tmp_path / name, array)
    read = read_idx(tmp_path / name)
    assert np.array_equal(read, array)
    assert read.dtype == array.dtype


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG....", "is not an IDX file"),
        (b"\0\0\x08\x01\0\0\0\x05abcd", "12 bytes where 13 were expected"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(PlexusError, match=rf"x (is not|is damaged).*{message[-10:]}"):
        read_idx(tmp_path / "x")


def test_a_truncated_gzip_or_missing_idx_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"\0\0\x08\x01\0\0\0\x64" + bytes(range(100)))
    (tmp_path / "x.gz").write_bytes(whole[:60])
    (tmp_path / "y.gz").write_bytes(b"not gzip")
    with pytest.raises(PlexusError, match=r"x.gz is damaged: .* bytes where 108 were expected"):
        read_idx(tmp_path / "x.gz")
    for name in ("y.gz", "absent"):
        with pytest.raises(PlexusError, match=f"{name} cannot be read"):
            read_idx(tmp_path / name)


def test_leaf_users_of_several_files_in_the_order_of_names(tmp_path: Path) -> None:
    write_leaf(tmp_path / "a.json", {"u2": ([[0.0] * 784], [5])})
    write_leaf(tmp_path / "b.json", {"u1": ([[1.0] * 784] * 2, [61, 0]), "empty": ([], [])})
    examples = read_leaf(tmp_path)
    assert examples.users.tolist() == ["u1", "u1", "u2"]
    assert examples.labels.tolist() == [61, 0, 5]
    assert femnist_images(examples, tmp_path)[:, 0, 0, 0].tolist() == [255, 255, 0]


def test_femnist_bytes_survive(tmp_path: Path) -> None:
    pixels = write_femnist(tmp_path, users=3, each=2)
    assert np.array_equal(femnist_images(read_leaf(tmp_path / "train"), tmp_path), pixels)


@pytest.mark.parametrize(
    ("people", "message"),
    [
        ({"u": ([[0.0] * 784], [1, 2])}, "user u has 1 x but 2 y"),
        ({"u": ([], [])}, "no user has any example"),
    ],
)
def test_a_wrong_leaf_file_is_named(tmp_path: Path, people: Any, message: str) -> None:
    write_leaf(tmp_path / "a.json", people)
    with pytest.raises(PlexusError, match=message):
        read_leaf(tmp_path)


@pytest.mark.parametrize("x", [[[0.0] * 3], ["name.jpg"], [[2.0] * 784], [["a"] * 784]])
def test_femnist_wants_784_numbers_from_0_to_1(tmp_path: Path, x: Any) -> None:
    write_leaf(tmp_path / "a.json", {"u": (x, [1])})
    with pytest.raises(PlexusError, match="an example of FEMNIST"):
        femnist_images(read_leaf(tmp_path), tmp_path)


def test_leaf_that_is_no_leaf_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="has no JSON file"):
        read_leaf(tmp_path)
    (tmp_path / "a.json").write_text('{"users": ["u"], "user_data": {}}')
    with pytest.raises(PlexusError, match=r"a\.json: user u has no data"):
        read_leaf(tmp_path)
    (tmp_path / "a.json").write_text("[1")
    with pytest.raises(PlexusError, match=r"a\.json is not a LEAF file"):
        read_leaf(tmp_path)


def test_the_same_user_in_two_leaf_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write_leaf(tmp_path / name, {"u": ([[0.0] * 784], [1])})
    with pytest.raises(PlexusError, match=r"b\.json: user u is also in another file"):
        read_leaf(tmp_path)


def test_celeba_photographs_become_84_by_84(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "img_align_celeba").mkdir()
    image.new("RGB", (178, 218), (255, 0, 10)).save(tmp_path / "img_align_celeba" / "1.png")
    write_leaf(tmp_path / "a.json", {"7": (["1.png"], [1])})
    examples = read_leaf(tmp_path)
    pixels = celeba_images(examples, tmp_path)
    assert pixels.shape == (1, 3, 84, 84)
    assert pixels[0, :, 40, 40].tolist() == [255, 0, 10]
    with pytest.raises(PlexusError, match=r"photograph .*absent.img_align_celeba.1\.png cannot be read"):
        celeba_images(examples, tmp_path / "absent")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_movielens_ratings_with_either_line_end(tmp_path: Path, end: str) -> None:
    lines = ["userId,movieId,rating,timestamp", "2,50,4.5,9", "1,10,0.5,9", "2,10,3.0,9", ""]
    (tmp_path / "ratings.csv").write_bytes(end.join(lines).encode())
    ratings = read_ratings(tmp_path)
    assert (ratings.users.tolist(), ratings.movies.tolist()) == ([1, 0, 1], [1, 0, 0])
    assert ratings.stars.tolist() == [4.5, 0.5, 3.0]
    assert (ratings.user_count, ratings.movie_count) == (2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "does not begin with the line userId"),
        ("userId,movieId,rating,timestamp\n", "has no ratings"),
        ("userId,movieId,rating,timestamp\n1,2,x,3\n", "line 2: '1,2,x,3' is not a rating"),
        ("userId,movieId,rating,timestamp\n1,2,3,4\n5\n", "line 3: '5' is not a rating"),
    ],
)
def test_wrong_ratings_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ratings.csv").write_text(text)
    with pytest.raises(PlexusError, match=message):
        read_ratings(tmp_path)


def test_written_digits_from_idx_and_npz_are_the_same(tmp_path: Path) -> None:
    train, test = write_qmnist(tmp_path, writers=3, each=4)
    from_idx = read_written_digits(tmp_path)
    names = ("x_train", "y_train", "writer_train", "x_test", "y_test", "writer_test")
    np.savez(tmp_path / "mnist_by_writer.npz", **dict(zip(names, (*train, *test), strict=True)))
    from_npz = read_written_digits(tmp_path)
    for one, other in zip(from_idx, from_npz, strict=True):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)
        assert np.array_equal(one.writers, other.writers)


def test_wrong_files_of_written_digits_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="qmnist-test-images-idx3-ubyte is missing"):
        read_written_digits(tmp_path)
    write_qmnist(tmp_path, writers=3, each=4)
    write_idx(tmp_path / "qmnist-test-labels-idx2-int", np.zeros((4, 2), np.int32))
    with pytest.raises(PlexusError, match="does not have QMNIST's columns"):
        read_written_digits(tmp_path)
    (tmp_path / "mnist_by_writer.npz").write_bytes(b"no zip")
    with pytest.raises(PlexusError, match="npz is not a file of digits by writer"):
        read_written_digits(tmp_path)


def test_an_npz_with_a_pickle_inside_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist_by_writer.npz", x_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(PlexusError, match="is not a file of digits by writer"):
        read_written_digits(tmp_path)


def test_where_data_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLEXUS_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with pytest.raises(PlexusError, match=r"task\.data is not set, and .*home.* has no folder some"):
        data_folder(None, "some", what="things")
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path))
    with pytest.raises(PlexusError, match=r"has no folder some with things: .*plexus data list"):
        data_folder(None, "some", "other", what="things")
    (tmp_path / "other").mkdir()
    assert data_folder(None, "some", "other", what="things") == tmp_path / "other"
    assert data_folder(str(tmp_path), "some", what="things") == tmp_path
    with pytest.raises(PlexusError, match=r"task\.data: there is no folder .*absent"):
        data_folder(str(tmp_path / "absent"), "some", what="things")


def test_leaf_files_are_json(tmp_path: Path) -> None:
    write_leaf(tmp_path / "a.json", {"u": ([[0.5] * 784], [1])})
    assert set(json.loads((tmp_path / "a.json").read_text())) == {"users", "num_samples", "user_data"}
