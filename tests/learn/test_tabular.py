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
def test_other_separators_line_ends_and_a_byte_order_mark(delimiter: str, end: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("nothing", ["", "NaN", "nan", "inf", "-inf"])
@pytest.mark.parametrize("kinds", [("apple", "pear"), ("0", "1"), ("1.25", "2.5")])
def test_rows_without_a_target_are_left_out(nothing: str, kinds: tuple[str, str], tmp_path: Path) -> None:
    rows = "".join(f"{n},{kinds[n % 2]},{'ab'[n % 2]}\n" for n in range(6))
    plain = read_csv(written(tmp_path, f"n,kind,who\n{rows}"), "kind", owner="who")
    more = written(tmp_path, f"n,kind,who\n7,{nothing},c\n{rows}8,{nothing},c\n", "more.csv")
    table = read_csv(more, "kind", owner="who")
    assert table.notes == ("2 rows left out, as they have nothing in 'kind'",)
    assert table.classes == plain.classes
    assert table.targets.tolist() == plain.targets.tolist()
    assert np.array_equal(table.inputs, plain.inputs)
    assert table.owners is not None and table.owners.tolist() == list("ababab")


@pytest.mark.parametrize("nothing", ["", "NaN", "inf", "-inf", "NA", "null"])
def test_gaps_among_numbers_are_told(nothing: str, tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, f"a,b,y\n1,5,u\n{nothing},6,v\n3,{nothing},u\n"), "y")
    assert table.columns == ("a", "b")
    assert table.inputs[1, 0] == table.inputs[2, 1] == 0
    assert table.notes == tuple(f"1 gaps in '{name}' (empty, NaN or infinite) are its mean" for name in "ab")


@pytest.mark.parametrize("nothing", ["", "NA", "n/a", "NaN", "null"])
def test_gaps_among_words_are_told_and_no_words(nothing: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"a,b,y\nred,1,u\n{nothing},2,v\nnone,3,u\n")
    table = read_csv(path, "y")
    assert table.columns == ("a=none", "a=red", "b")
    assert table.inputs[1, :2].tolist() == [0, 0]
    assert table.notes == ("1 gaps in 'a' (empty or NA) count as no word",)
    assert table.schema.read(path).notes == table.notes


def test_a_word_among_numbers_is_named_with_its_line(tmp_path: Path) -> None:
    schema = read_csv(written(tmp_path, "a,y\n1,u\n2,v\n"), "y").schema
    path = written(tmp_path, 'a,y\n1,u\n\ninf,"w\nx"\n,v\nabc,v\n', "more.csv")
    with pytest.raises(PlexusError, match=r"more\.csv: column 'a' is one of numbers, but line 7 has 'abc'"):
        schema.read(path)


def test_a_column_without_anything_is_left_out_and_told(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "a,b,y\n1,,u\n2,NaN,v\n3,inf,u\n"), "y")
    assert table.columns == ("a",)
    assert table.notes == ("left out, as there is nothing in it: 'b'",)


def test_a_word_that_looks_like_a_gap_is_a_word_among_words(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "a,y\n1,none\n2,mild\n3,NA\n"), "y")
    assert (table.classes, table.notes) == (("NA", "mild", "none"), ())


def test_equal_numbers_whose_mean_is_rounded_have_no_deviation(tmp_path: Path) -> None:
    """What is a little more is a little more, not a million times a million."""
    same = written(tmp_path, "a,b,y\n" + "".join(f"0.1,{n % 7},{'uv'[n % 2]}\n" for n in range(100)))
    schema = read_csv(same, "y").schema
    other = written(tmp_path, "a,b,y\n0.1,1,u\n0.2,2,v\n", "other.csv")
    assert schema.read(other).inputs[:, 0].tolist() == pytest.approx([0, 0.1])


def test_a_column_that_never_changes_is_zero(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "a,b,y\n5,1,u\n5,2,v\n"), "y")
    assert table.inputs[:, 0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (TABLE, {"target": "sort"}, "has no column 'sort'; it has size, colour, weight, site, kind"),
        (TABLE, {"target": "kind", "owner": "who"}, "has no column 'who'"),
        ("a,b\n1,\n2,x\n3,NaN\n", {"target": "b"}, "1 rows have something in 'b', the column to"),
        (TABLE, {"target": "kind", "kind": "number"}, "'kind' has words in it"),
        ("a,b\n\n1,2\n3\n", {"target": "b"}, "line 4 has 1 cells, the header 2"),
        ("", {"target": "b"}, "expected a header of different names and at least two rows below it$"),
        ("a,b\n1,2\n", {"target": "b"}, "at least two rows below it$"),
        (
            "a,a\n1,2\n3,4\n",
            {"target": "a"},
            "expected a header of different names.* two columns are called 'a'",
        ),
        (",a,b\n0,1,2\n1,3,4\n", {"target": "b"}, r"different names.*: column 1 has no name \(an index\?"),
        ('a,b\n1,"x\n' + "2,y\n" * 40_000, {"target": "b"}, "line 3.* field larger than .*a quote left open"),
        ("a,b\n1.7e308,x\n-1.7e308,y\n", {"target": "b"}, r"'a' has 1.7e\+308, too large to learn from"),
        ("a,b\n1,1.7e308\n2,1e308\n", {"target": "b", "kind": "number"}, "'b' has 1.7e.308, too large"),
        ("a,b\n1,x\n2,x\n", {"target": "b"}, "'b' is 'x' in every row"),
        ("b\nx\ny\n", {"target": "b"}, "no column is left to learn from"),
        ("a,b\n,x\n,y\n", {"target": "b"}, "no column is left to learn from; left out: 'a'"),
    ],
)
def test_what_is_wrong_is_one_line(
    text: str, options: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PlexusError, match=complaint) as caught:
        read_csv(path, **options)  # type: ignore[arg-type]
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_what_ends_no_row_is_in_a_cell(tmp_path: Path) -> None:
    path = written(tmp_path, '\n\na;y\n"two, or three,\nlines";u\ncaf\u0085\u2028e;v\n')
    assert read_csv(path, "y").columns == ("a=caf\u0085\u2028e", "a=two, or three,\nlines")


def test_a_class_is_one_however_it_is_written(tmp_path: Path) -> None:
    """Programs make 1.0 of 1 where a column has gaps."""
    table = read_csv(written(tmp_path, "a,y\n1,1.0\n2,2\n3,1\n4,2.0\n"), "y", kind="classes")
    assert (table.classes, table.targets.tolist()) == (("1", "2"), [0, 1, 0, 1])
    other = written(tmp_path, "a,y\n1,2.0\n2,1.0\n3,1.5\n", "other.csv")
    assert table.schema.read(other).targets.tolist() == [1, 0]
    words = read_csv(written(tmp_path, "a,y\n1,1.0\n2,1\n3,beta\n", "words.csv"), "y")
    assert (words.classes, words.targets.tolist()) == (("1", "1.0", "beta"), [1, 0, 2])


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
