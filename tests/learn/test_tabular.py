"""CSV files of all sorts become examples, or one line that says what is in the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plexus.errors import PlexusError
from plexus.learn.tabular import MANY_WORDS, read_csv

TABLE = """\
size, colour ,weight,site,kind
1,red,,north,apple
2,green,4,south,pear
3,red,8,north,apple
"""


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_numbers_words_gaps_and_owners(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, TABLE), "kind", owner="site")
    assert table.columns == ("size", "colour=green", "colour=red", "weight")
    assert (table.classes, table.targets.tolist()) == (("apple", "pear"), [0, 1, 0])
    assert table.owners is not None and table.owners.tolist() == ["north", "south", "north"]
    third = 1.5**0.5
    expected = [[-third, 0, 1, 0], [0, 1, 0, -third], [third, 0, 1, third]]
    assert table.inputs == pytest.approx(np.array(expected), abs=1e-6)
    examples = table.examples(np.array([2, 0]))
    assert examples.ids.tolist() == [2, 0]
    assert (examples.inputs.dtype, examples.targets.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_other_separators_line_ends_and_a_byte_order_mark(
    delimiter: str, end: str, tmp_path: Path
) -> None:
    text = "\ufeff" + TABLE.replace(",", delimiter).replace("\n", end)
    plain = read_csv(written(tmp_path, TABLE), "kind", ignore=["site"])
    other = read_csv(written(tmp_path, text, "other.csv"), "kind", ignore=["site"])
    assert other.columns == plain.columns
    assert np.array_equal(other.inputs, plain.inputs)


def test_a_target_is_a_class_or_a_quantity(tmp_path: Path) -> None:
    rows = "\n".join(f"{n},{n % 10 + 1},{n / 7}" for n in range(40))
    path = written(tmp_path, f"n,grade,price\n{rows}\n")
    assert read_csv(path, "grade").classes == tuple(str(grade) for grade in range(1, 11))
    price = read_csv(path, "price")
    assert (price.classes, price.targets.dtype) == ((), np.float32)
    assert [price.targets.mean(), price.targets.std()] == pytest.approx([0, 1], abs=1e-6)
    assert read_csv(path, "grade", kind="number").classes == ()
    assert len(read_csv(path, "n", kind="classes").classes) == 40


def test_a_column_that_never_changes_is_zero(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "a,b,y\n5,1,u\n5,2,v\n"), "y")
    assert table.inputs[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (
            TABLE,
            {"target": "sort"},
            "has no column 'sort'; it has size, colour, weight, site, kind",
        ),
        (TABLE, {"target": "kind", "owner": "who"}, "has no column 'who'"),
        (TABLE, {"target": "weight"}, "row 2 has nothing in 'weight', the column to predict"),
        (TABLE, {"target": "kind", "kind": "number"}, "'kind' has words in it"),
        ("a,b\n1,2\n3\n", {"target": "b"}, "row 3 has 1 cells, the header 2"),
        ("", {"target": "b"}, "expected a header of different names and at least two rows"),
        ("a,a\n1,2\n3,4\n", {"target": "a"}, "expected a header of different names"),
        ("a,b\n1,x\n2,x\n", {"target": "b"}, "'b' is 'x' in every row"),
        ("b\nx\ny\n", {"target": "b"}, "no column is left to learn from"),
    ],
)
def test_what_is_wrong_is_one_line(
    text: str, options: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PlexusError, match=complaint) as caught:
        read_csv(path, **options)  # type: ignore[arg-type]
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_names_and_files_that_say_nothing(tmp_path: Path) -> None:
    rows = "".join(f"id{n},{n},{'uv'[n % 2]}\n" for n in range(MANY_WORDS + 1))
    path = written(tmp_path, f"id,n,y\n{rows}")
    with pytest.raises(PlexusError, match="column 'id' has 51 different words: leave it out"):
        read_csv(path, "y")
    assert read_csv(path, "y", ignore=["id"]).columns == ("n",)
    with pytest.raises(PlexusError, match="No such file"):
        read_csv(tmp_path / "none.csv", "y")
    (tmp_path / "latin.csv").write_bytes(b"a,b\n\xe9,1\n")
    with pytest.raises(PlexusError, match="not UTF-8"):
        read_csv(tmp_path / "latin.csv", "b")
