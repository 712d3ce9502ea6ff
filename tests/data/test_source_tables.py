"""Tables and arrays from files, and a sentence for each way they can be wrong."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import apoint.data
from apoint.data import parquet, tables
from apoint.data.core import Source
from apoint.errors import UsageError


def csv_source(folder: Path, content: str, name: str = "table.csv", **settings: Any) -> Source:
    (folder / name).write_text(content, encoding="utf-8")
    return tables.csv_file(folder, path=name, **settings)


def refusal(folder: Path, content: str, name: str = "table.csv", **settings: Any) -> str:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        apoint.data.load({"name": "csv", "path": name, **settings}, root=folder)
    return str(caught.value).removeprefix(f"{folder}/")


def test_a_real_table_comes_back_as_it_was(tmp_path: Path) -> None:
    iris = load_iris()
    rows = zip(iris.data, iris.target, strict=True)
    lines = [",".join([*map(str, row), iris.target_names[label]]) for row, label in rows]
    source = csv_source(tmp_path, "\n".join(["a,b,c,d,species", *lines]))
    assert source.facts.task == "classification"
    assert source.facts.class_names == ("setosa", "versicolor", "virginica")
    np.testing.assert_array_equal(source.train.inputs.numpy(), iris.data.astype(np.float32))
    np.testing.assert_array_equal(source.train.targets.numpy(), iris.target)


def test_the_fast_and_the_careful_reader_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.normal(size=(50, 3)), np.arange(50) % 4])
    content = "a,b,c,y\n" + "\n".join(",".join(f"{cell:.17g}" for cell in row) for row in values)
    path = tmp_path / "table.csv"
    path.write_text(content)
    fast, careful = tables._read_numbers(path, ",", True), tables._read_cells(path, ",", True)
    assert fast is not None
    assert (fast.names, list(fast.lines), fast.unit) == (careful.names, list(careful.lines), careful.unit)
    for column in range(4):
        first, second = tables.numbers(fast, column, False), tables.numbers(careful, column, False)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, values[:, column])
    sources = [
        tables.to_source(table, None, target=-1, task="auto", ignore=(), categorical=(), allow_missing=False)
        for table in (fast, careful)
    ]
    assert sources[0].facts == sources[1].facts
    assert torch.equal(sources[0].train.targets, sources[1].train.targets)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["red", "blue", "red", "1"], True),
        (["1", "0", "1", "0"], True),
        (["1.0", "0", "1", "0.0"], True),
        (["1", "2", "3", "0"], False),  # four different numbers in four rows
        (["1.5", "0.5", "1.5", "0.5"], False),
        ([str(row) for row in range(20)] * 2, True),
        ([str(row) for row in range(21)] * 2, False),  # more than 20 different
        ([True, False, True, True], True),
        (["inf", "1", "1", "1"], False),
    ],
)
def test_what_looks_like_classes(cells: list[Any], expected: bool) -> None:
    assert tables.is_classification(cells) is expected


def test_regression_targets_and_numbered_classes(tmp_path: Path) -> None:
    content = "x,y\n" + "\n".join(f"{row},{row % 3 * 5}" for row in range(12))
    classes = csv_source(tmp_path, content)
    assert classes.facts.class_names == ("0", "5", "10"), "numbers are in the order of their values"
    assert classes.train.targets[:4].tolist() == [0, 1, 2, 0]
    numbers = csv_source(tmp_path, content, task="regression")
    assert (numbers.facts.task, numbers.facts.num_outputs, numbers.facts.class_names) == ("regression", 1, ())
    assert numbers.train.targets[:4].tolist() == [[0], [5], [10], [0]]
    assert csv_source(tmp_path, content, target="x").facts.task == "regression"
    assert csv_source(tmp_path, content, target="x", task="classification").facts.num_outputs == 12


def test_the_target_by_name_and_by_number(tmp_path: Path) -> None:
    content = "a,b,c\n" + "\n".join(f"{row},{row % 2},{row * 10}" for row in range(6))
    by_name = csv_source(tmp_path, content, target="b")
    for place in (1, -2):
        assert torch.equal(csv_source(tmp_path, content, target=place).train.inputs, by_name.train.inputs)
    assert by_name.train.inputs[2].tolist() == [2, 20]
    fewer = csv_source(tmp_path, content, target="b", ignore=("a",))
    assert fewer.train.inputs[2].tolist() == [20]


def test_byte_order_marks_quotes_blank_lines_and_tabs(tmp_path: Path) -> None:
    content = '\ufeffa\t"b, too"\ty\n1\t2\tno\n\n3\t"4"\tyes\n5\t6\tno\n7\t8\tyes\n'
    source = csv_source(tmp_path, content, name="table.tsv", ignore=("b, too",))
    assert source.train.inputs.flatten().tolist() == [1, 3, 5, 7]
    assert source.facts.class_names == ("no", "yes")


def test_missing_values_are_filled_with_the_training_mean(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a,b,y\n1,5,0\n,7,1\n3,NA,0\n8,6,1\n")
    (tmp_path / "test.csv").write_text("a,b,y\n,?,1\n")
    data = apoint.data.load(
        "csv", root=tmp_path, path="train.csv", test_path="test.csv", allow_missing=True, normalise=False
    )
    assert data.train.inputs.tolist() == [[1, 5], [4, 7], [3, 6], [8, 6]]
    assert data.test.inputs.tolist() == [[4, 6]]
    assert data.notes[:2] == [
        "train: 2 missing values filled with the training mean of their column",
        "test: 2 missing values filled with the training mean of their column",
    ]


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        ("", {}, "table.csv: the file is empty; it needs a row of column names and rows of values"),
        ("a,b\n", {}, "table.csv: there are column names but no rows below them; add rows"),
        (
            "a,b,y\n1,2,0\n3,red,1\n",
            {},
            "table.csv, line 3, column 'b': expected a number, got 'red'; correct it, name the column "
            "under categorical to have an input for each of its values, or leave it out with ignore",
        ),
        (
            "a,b,y\n1,2,0\n\n3,1_0,1\n",
            {},
            "table.csv, line 4, column 'b': expected a number, got '1_0'; correct it, name the column "
            "under categorical to have an input for each of its values, or leave it out with ignore",
        ),
        (
            "a,b,y\n1,2,0\n3,1\n",
            {},
            "table.csv, line 3: the row has 2 cells, the first one has 3; all rows must have as many cells",
        ),
        (
            "a,b,y\n1,,0\n3,1,1\n",
            {},
            "table.csv, line 2, column 'b': the value is missing; fill it in, or, for a feature, set "
            "allow_missing to have it replaced by its column's mean",
        ),
        (
            "a,b,y\n1,NaN,0\n3,1,1\n",
            {},
            "table.csv, line 2, column 'b': the value is missing; fill it in, or, for a feature, set "
            "allow_missing to have it replaced by its column's mean",
        ),
        (
            "a,b,y\n1,2,0\n3,inf,1\n",
            {"allow_missing": True},
            "table.csv, line 3, column 'b': a value must be finite, got 'inf'; correct it",
        ),
        (
            "a,b,y\n1,2,no\n3,4,\n",
            {"allow_missing": True},
            "table.csv, line 3, column 'y': the class is missing; fill it in or remove the row",
        ),
        (
            "a,b,quality\n1,2,0\n3,4,1\n",
            {"target": "qualty"},
            "table.csv: target: no column is called 'qualty'; did you mean 'quality'?",
        ),
        (
            "a,b,y\n1,2,0\n3,4,1\n",
            {"target": 3},
            "table.csv: target is column 3, but there are 3 columns, counted from 0",
        ),
        (
            "a,a,y\n1,2,0\n3,4,1\n",
            {"target": "a"},
            "table.csv: target 'a' is the name of 2 columns; rename them or give the number",
        ),
        (
            "a,y\n1,0\n3,1\n",
            {"ignore": ["a"]},
            "table.csv: no column is left to learn from besides the target; ignore fewer",
        ),
        (
            "a;b;y\n1;2;0\n3;4;1\n",
            {},
            "table.csv: there is only one column, split at ','; set delimiter to ';'",
        ),
        (
            "a\n1\n3\n",
            {},
            "table.csv: there is only one column, split at ','; a target and at least one feature are needed",
        ),
        (
            "1,2,0\n3,4,1\n",
            {},
            "table.csv: the first row should name the columns, but it holds only numbers (1, 2, 0, …); add "
            "names, or set header to false",
        ),
        (
            'a,b,y\n1,"2"x,0\n',
            {},
            "table.csv, line 2: not readable as CSV (',' expected after '\"'); correct the line",
        ),
        (
            "a,y\n1,x\n2,x\n3,x\n",
            {},
            "dataset 'csv': all 3 training samples are of one class, 'x'; there is nothing to "
            "tell apart, so bring samples of a second class",
        ),
        (
            "a,y\n1,0\n",
            {"delimiter": ";;"},
            "dataset 'csv': delimiter: String should have at most 1 character, got ';;'",
        ),
    ],
)
def test_a_bad_table_is_refused_in_one_sentence(
    content: str, settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path, content, **settings) == sentence


def test_test_tables_must_match_the_training_table(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("a,c,y\n1,2,0\n")
    assert "its columns ['a', 'c', 'y'] are not those of" in refusal(
        tmp_path, "a,b,y\n1,2,0\n3,4,1\n", test_path="more.csv"
    )
    (tmp_path / "more.csv").write_text("a,b,y\n1,2,maybe\n")
    assert refusal(tmp_path, "a,b,y\n1,2,no\n3,4,yes\n", test_path="more.csv") == (
        "dataset 'csv': test: 'maybe' never occurs in the training samples, so it cannot be learned; add "
        "training samples or take it out"
    )


def test_what_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"a,y\n1,\xff\xfe\n")
    with pytest.raises(UsageError, match=r"table\.csv: byte 6 is not UTF-8 text; save the file as UTF-8"):
        apoint.data.load(str(tmp_path / "table.csv"))
    with pytest.raises(UsageError, match=r"is a folder; a regular file is needed"):
        apoint.data.load({"name": "csv", "path": str(tmp_path)})


def test_extensions_say_what_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "sheet.xlsx").touch()
    with pytest.raises(
        UsageError, match=r"sheet\.xlsx: cannot tell from the extension '\.xlsx' what kind of data"
    ):
        apoint.data.load(str(tmp_path / "sheet.xlsx"))
    with pytest.raises(UsageError, match="unknown dataset 'digit'; did you mean 'digits'"):
        apoint.data.load("digit")
    with pytest.raises(UsageError, match="expected a name or"):
        apoint.data.load({"path": "x"})


# ----------------------------------------------------------------------------------------------- Parquet


def write_parquet(path: Path, **columns: Any) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_parquet_reads_what_was_written(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", a=[1, 2, 3, 4], b=[0.5, 1.5, None, 2.5], y=["u", "v", "u", "v"])
    source = parquet.parquet_file(tmp_path, path="t.parquet", allow_missing=True)
    assert source.facts.class_names == ("u", "v")
    assert source.train.inputs[:, 0].tolist() == [1, 2, 3, 4]
    assert math.isnan(source.train.inputs[2, 1])
    with pytest.raises(UsageError, match=r"t\.parquet, row 3, column 'b': the value is missing"):
        parquet.parquet_file(tmp_path, path="t.parquet")
    with pytest.raises(UsageError, match=r"t\.parquet, row 1, column 'y': expected a number, got 'u'"):
        parquet.parquet_file(tmp_path, path="t.parquet", target="a", allow_missing=True)


def test_parquet_truth_values_are_classes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "t.parquet", a=[True, False, True], y=[True, False, False])
    source = parquet.parquet_file(tmp_path, path="t.parquet")
    assert source.facts.class_names == ("False", "True")
    assert source.train.targets.tolist() == [1, 0, 0]
    assert source.train.inputs.flatten().tolist() == [1, 0, 1]


def test_bad_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "t.parquet", a=[1, 2], y=[1, 2])
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-10])
    with pytest.raises(UsageError, match=r"cut\.parquet: not readable as Parquet \("):
        apoint.data.load(str(tmp_path / "cut.parquet"))
    write_parquet(tmp_path / "none.parquet", a=[], y=[])
    with pytest.raises(UsageError, match=r"none\.parquet: the file is empty"):
        apoint.data.load(str(tmp_path / "none.parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError) as caught:
        apoint.data.load(str(tmp_path / "t.parquet"))
    assert str(caught.value) == (
        f"{tmp_path}/t.parquet: reading Parquet needs pyarrow, which is not installed; install it with "
        "'pip install apoint[parquet]', or save the table as CSV"
    )


# --------------------------------------------------------------------------------------------------- NPZ


def npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "a.npz", **arrays)
    return str(folder / "a.npz")


def test_keras_files_are_understood(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 7, 5), dtype=np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    path = npz(tmp_path, x_train=images[:20], y_train=labels[:20], x_test=images[20:], y_test=labels[20:])
    data = apoint.data.load(path)
    assert data.facts.input_shape == (1, 7, 5)
    np.testing.assert_array_equal(data.test.inputs[:, 0].numpy(), images[20:])
    np.testing.assert_array_equal(data.test.targets.numpy(), labels[20:])


@pytest.mark.parametrize(
    ("shape", "channels", "expected"),
    [
        ((9, 8, 8, 3), "auto", (3, 8, 8)),
        ((9, 3, 8, 8), "auto", (3, 8, 8)),
        ((9, 3, 8, 3), "auto", (3, 8, 3)),
        ((9, 3, 8, 3), "last", (3, 3, 8)),
        ((9, 8, 8, 3), "first", (8, 8, 3)),
    ],
)
def test_channels_are_brought_to_the_front(
    shape: tuple[int, ...], channels: str, expected: tuple[int, ...], tmp_path: Path
) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(np.uint8)
    data = apoint.data.load(npz(tmp_path, x=array, y=np.arange(9) % 2), channels=channels, limit=None)
    assert data.facts.input_shape == expected


class Trap:
    """What runs when a pickle of it is read."""

    sprung = False

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, ("raise SystemExit('a pickle was read')",)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (
            {"x": np.zeros((3, 2)), "y": np.zeros(2)},
            "x has the shape (3, 2) and y (2,); there must be one target for each",
        ),
        (
            {"x": np.zeros((3, 2)), "z": np.zeros(3)},
            "cannot tell which array holds the targets; it has x, z, so set targets",
        ),
        (
            {"x": np.zeros((3, 2)), "y": np.array(["a", "b", "c"])},
            "y is of type <U1; only numbers can be learned from",
        ),
        ({"x": np.array([[0.0], [np.nan]]), "y": np.arange(2)}, "x[1, 0] is nan; values must be finite"),
        (
            {"x": np.zeros((3, 2)), "y": np.array([0, 1, -1])},
            "labels must be whole numbers from 0 to 1, found -1",
        ),
        ({"x": np.zeros((3, 2)), "y": np.array([Trap()] * 3)}, "reading that could run code from the file"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "there are no samples; at least one is needed"),
        ({"x": np.zeros((3, 2)), "y": np.array([1, 1, 1])}, "all 3 training samples are of one class, '1'"),
        (
            {"x": np.eye(2), "y": np.arange(2), "x_test": np.eye(2), "y_test": np.array([0, 2])},
            "test: '2' never occurs in the training samples",
        ),
        (
            {"x": np.eye(2), "y": np.arange(2), "x_test": np.eye(2)[:, :1], "y_test": np.arange(2)},
            "test: inputs have the shape (1,), but the dataset says (2,)",
        ),
        (
            {"x": np.eye(2), "y": np.arange(2), "x_test": np.eye(2), "y_test": np.array([0.5, 1])},
            "the training samples look like vector classification, the test samples like vector regression",
        ),
    ],
)
def test_bad_arrays_are_refused(arrays: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        apoint.data.load(npz(tmp_path, **arrays))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_npz_files_are_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, x=np.eye(2), y=np.arange(2))
    with pytest.raises(UsageError, match=r"a\.npz: inputs: there is no array 'w'; known: x, y"):
        apoint.data.load(path, inputs="w")
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match=r"a\.npz: not readable as NPZ \("):
        apoint.data.load(path)
    np.save(tmp_path / "single.npy", np.eye(2))
    (tmp_path / "single.npy").rename(path)
    with pytest.raises(
        UsageError, match=r"a\.npz: this is a single array; save inputs and targets with numpy\.savez"
    ):
        apoint.data.load(path)


# -- categories -----------------------------------------------------------------------------------------


def test_categories_are_coded_as_scikit_learn_codes_them(tmp_path: Path) -> None:
    from sklearn.preprocessing import OneHotEncoder

    rng = np.random.default_rng(0)
    colours, sizes = rng.choice(["red", "blue", "green"], 60), rng.choice([2, 10, 1], 60)
    values, classes = rng.normal(size=60).astype(np.float32), rng.integers(0, 2, 60)
    rows = zip(colours, values, sizes, classes, strict=True)
    content = "colour,value,size,y\n" + "\n".join(",".join(map(str, row)) for row in rows)
    source = csv_source(tmp_path, content, categorical=("colour", 2))
    coded = [OneHotEncoder(sparse_output=False).fit_transform(column[:, None]) for column in (colours, sizes)]
    expected = np.hstack([coded[0], values[:, None], coded[1]])
    assert source.facts.input_shape == (7,)
    np.testing.assert_allclose(source.train.inputs.numpy(), expected, rtol=1e-6)


def test_categories_of_the_test_file_count_too_and_missing_ones_are_filled(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("c,y\npink,0\nred,1\n")
    content = "c,y\n" + "red,0\nblue,1\n,1\nred,0\n"
    source = csv_source(
        tmp_path, content, test_path="test.csv", categorical=("c",), allow_missing=True, task="classification"
    )
    assert source.facts.input_shape == (3,)  # blue, pink, red
    assert source.train.inputs[2].isnan().all()
    assert source.test is not None
    assert source.test.inputs.tolist() == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        ("a,b,y\nred,1,0\nblue,2,1\n", {}, "name the column under categorical"),
        ("a,b,y\nred,1,0\n,2,1\n", {"categorical": ["a"]}, "line 3, column 'a': the value is missing"),
        (
            "a,b,y\nred,1,0\nblue,2,1\n",
            {"categorical": ["y"]},
            "categorical names 'y', which is not a feature",
        ),
        ("a,b,y\nred,1,0\nblue,2,1\n", {"categorical": ["c"]}, "categorical: no column is called 'c'"),
        ("a,b,y\nred,1,0\nblue,2,1\n", {"categorical": ["a"], "ignore": ["a"]}, "take it out of categorical"),
        ("a,a,y\n1,1,0\n2,2,1\n", {}, "2 columns are called 'a'; rename them"),
        (
            "a,y\n" + "".join(f"id{row},{row % 2}\n" for row in range(201)),
            {"categorical": ["a"]},
            "column 'a' has 201 different values, and a categorical one has at most 200",
        ),
    ],
)
def test_what_cannot_be_categories_is_refused(
    tmp_path: Path, content: str, settings: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(tmp_path, content, **settings)


def test_of_columns_with_one_name_all_but_one_can_be_left_out(tmp_path: Path) -> None:
    source = csv_source(tmp_path, "a,a,y\n1,5,0\n2,6,1\n3,7,0\n4,8,1\n", ignore=(0,))
    assert source.train.inputs.flatten().tolist() == [5, 6, 7, 8]
