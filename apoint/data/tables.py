"""Tables: numbers in columns, one of them the target; and the reader for CSV files.

Every reader makes a `Table`; from there on they are the same. A cell that cannot be read raises an error with
the file, the line and the column.
"""

from __future__ import annotations

import csv
import io
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from apoint.data.core import Facts, Source, Split
from apoint.data.locate import open_file, resolve
from apoint.data.memory import refuse_too_large
from apoint.errors import UsageError, suggestion
from apoint.registry import register

TaskChoice = Literal["auto", "classification", "regression"]
Delimiter = Annotated[str, Field(min_length=1, max_length=1)]
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
MOST_CLASSES = 20
"""Whole numbers with at most this many different values are treated as classes, if `task` is `auto`."""
MOST_CATEGORIES = 200


@dataclass
class Table:
    """Cells by column: numbers, text, None if one is missing; a column of numbers may be an array.

    Attributes:
        file: The file it came from.
        names: The columns' names.
        columns: The cells of each column.
        lines: The position of each row in the file, for messages.
        unit: What `lines` counts: `line` or `row`.
    """

    file: Path
    names: list[str]
    columns: Sequence[Sequence[Any] | npt.NDArray[Any]]
    lines: Sequence[int]
    unit: str

    def where(self, row: int, column: int) -> str:
        """The position of a cell, for the beginning of a sentence."""
        return f"{self.file}, {self.unit} {self.lines[row]}, column {self.names[column]!r}"

    def find(self, wanted: str | int, what: str) -> int:
        """The index of the column with this name or this number (from the end if negative)."""
        if isinstance(wanted, int):
            if -len(self.names) <= wanted < len(self.names):
                return wanted % len(self.names)
            raise UsageError(
                f"{self.file}: {what} is column {wanted}, but there are {len(self.names)} columns, counted "
                "from 0"
            )
        count = self.names.count(wanted)
        if count == 1:
            return self.names.index(wanted)
        if count:
            raise UsageError(
                f"{self.file}: {what} {wanted!r} is the name of {count} columns; rename them or give the "
                "number"
            )
        raise UsageError(
            f"{self.file}: {what}: no column is called {wanted!r}; {suggestion(wanted, self.names)}"
        )


def as_number(cell: Any) -> float | None:
    """A cell as a number; NaN if it is missing, None if it is text."""
    if cell is None:
        return math.nan
    if isinstance(cell, str):
        cell = cell.strip()
        if cell.lower() in MISSING:
            return math.nan
        if "_" in cell:  # Python reads 1_000 as a number, a table means something else
            return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _short(cell: Any) -> str:
    """A cell for a message, shortened if it is very long."""
    text = repr(cell)
    return text if len(text) <= 100 else f"{text[:100]}…"


def numbers(table: Table, column: int, allow_missing: bool) -> npt.NDArray[np.float64]:
    """A column as numbers; raise for text, infinity, and missing cells unless they are allowed."""
    cells = table.columns[column]
    values = cells if isinstance(cells, np.ndarray) else [as_number(cell) for cell in cells]
    found = np.array(values, dtype=np.float64)  # text became None, which becomes NaN
    suspects = ~np.isfinite(found)
    for row in np.flatnonzero(suspects).tolist():
        where, cell = table.where(row, column), cells[row]
        if values[row] is None:
            raise UsageError(
                f"{where}: expected a number, got {_short(cell)}; correct it, name the column under "
                "categorical to have an input for each of its values, or leave it out with ignore"
            )
        if math.isinf(found[row]):
            raise UsageError(f"{where}: a value must be finite, got {_short(cell)}; correct it")
        if not allow_missing:
            raise UsageError(
                f"{where}: the value is missing; fill it in, or, for a feature, set allow_missing to have it "
                "replaced by its column's mean"
            )
    return found


def is_classification(cells: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Whether a target column looks like classes: text, booleans, or few different whole numbers."""
    values = [as_number(cell) for cell in cells]
    if any(value is None for value in values) or any(isinstance(cell, bool) for cell in cells):
        return True
    known = [value for value in values if value is not None and not math.isnan(value)]
    is_whole = all(value.is_integer() for value in known)
    return is_whole and len(set(known)) <= min(MOST_CLASSES, len(values) // 2)


def _value_name(cell: Any) -> str | None:
    """A cell as the name of a class or category, None if it is missing; 1, 1.0 and '1' are the same."""
    number = as_number(cell)
    if isinstance(cell, bool) or number is None:
        return str(cell).strip()
    if math.isnan(number):
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _labels(table: Table, column: int) -> list[str]:
    """The target column as class names."""
    names = []
    for row, cell in enumerate(table.columns[column]):
        name = _value_name(cell)
        if name is None:
            raise UsageError(
                f"{table.where(row, column)}: the class is missing; fill it in or remove the row"
            )
        names.append(name)
    return names


def _in_order(names: set[str]) -> tuple[str, ...]:
    """Class names in order: as numbers if all are numbers, else as text."""
    values = {name: as_number(name) for name in names}
    if any(value is None for value in values.values()):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: values[name] or 0.0))


def to_source(
    table: Table,
    test: Table | None,
    *,
    target: str | int,
    task: TaskChoice,
    ignore: Sequence[str | int],
    categorical: Sequence[str | int],
    allow_missing: bool,
) -> Source:
    """A table, and optionally a second one for testing, as a source of vectors."""
    aim = table.find(target, "target")
    left_out = {table.find(name, "ignore") for name in ignore}
    features = [column for column in range(len(table.names)) if column != aim and column not in left_out]
    if not features:
        raise UsageError(f"{table.file}: no column is left to learn from besides the target; ignore fewer")
    _refuse_repeated(table, [*features, aim])
    coded = _coded(table, features, categorical)
    if test is not None and test.names != table.names:
        raise UsageError(
            f"{test.file}: its columns {test.names} are not those of {table.file}, {table.names}; make them "
            "agree"
        )
    if task == "auto":
        task = "classification" if is_classification(table.columns[aim]) else "regression"
    tables = [table] if test is None else [table, test]
    categories = {column: _categories(tables, column) for column in coded}
    inputs = [_inputs(part, features, categories, allow_missing) for part in tables]
    outputs, classes = _targets(tables, aim, task)
    facts = Facts("vector", task, (inputs[0].shape[1],), len(classes) or 1, classes)
    splits = [Split(x, y) for x, y in zip(inputs, outputs, strict=True)]
    return Source(facts, splits[0], splits[1] if len(splits) > 1 else None, fill_missing=allow_missing)


def _refuse_repeated(table: Table, used: list[int]) -> None:
    names = [table.names[column] for column in used]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"{table.file}: {names.count(twice)} columns are called {twice!r}; rename them, or leave out by "
            "their numbers with ignore those that are not wanted"
        )


def _coded(table: Table, features: list[int], categorical: Sequence[str | int]) -> list[int]:
    """The features that are categories."""
    coded = [table.find(name, "categorical") for name in categorical]
    for column in coded:
        if column not in features:
            raise UsageError(
                f"{table.file}: categorical names {table.names[column]!r}, which is not a feature; take it "
                "out of categorical, or out of ignore"
            )
    return coded


def _categories(tables: list[Table], column: int) -> tuple[str, ...]:
    """The values of a column of categories, in order."""
    names = {_value_name(cell) for table in tables for cell in table.columns[column]} - {None}
    if len(names) > MOST_CATEGORIES:
        raise UsageError(
            f"{tables[0].file}: column {tables[0].names[column]!r} has {len(names)} different values, and a "
            f"categorical one has at most {MOST_CATEGORIES}; group them, or leave the column out with ignore"
        )
    return _in_order({name for name in names if name is not None})


def _inputs(
    table: Table, features: list[int], categories: dict[int, tuple[str, ...]], allow_missing: bool
) -> Tensor:
    columns: list[npt.NDArray[Any]] = []
    for column in features:
        if column in categories:
            columns += _one_hot(table, column, categories[column], allow_missing)
        else:
            columns.append(numbers(table, column, allow_missing))
    return torch.from_numpy(np.stack(columns, axis=1)).float()


def _one_hot(
    table: Table, column: int, categories: tuple[str, ...], allow_missing: bool
) -> list[npt.NDArray[Any]]:
    """An input for each category, 1 in the rows of that category; NaN where the value is missing."""
    names = [_value_name(cell) for cell in table.columns[column]]
    if None in names and not allow_missing:
        raise UsageError(
            f"{table.where(names.index(None), column)}: the value is missing; fill it in, or set "
            "allow_missing to have each category's share of the training part in its place"
        )
    missing = np.array([name is None for name in names])
    return [
        np.where(missing, np.nan, np.array([name == category for name in names], dtype=np.float64))
        for category in categories
    ]


def _targets(tables: list[Table], aim: int, task: str) -> tuple[list[Tensor], tuple[str, ...]]:
    if task == "regression":
        return [torch.from_numpy(numbers(table, aim, False)).float().unsqueeze(1) for table in tables], ()
    named = [_labels(table, aim) for table in tables]
    classes = _in_order({name for names in named for name in names})
    position = {name: label for label, name in enumerate(classes)}
    return [torch.tensor([position[name] for name in names], dtype=torch.int64) for names in named], classes


def read_csv(path: Path, delimiter: str | None, header: bool) -> Table:
    """A CSV file as a table of text cells; blank lines are skipped, all rows must have the same length."""
    sign = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
    return _read_numbers(path, sign, header) or _read_cells(path, sign, header)


def _text_of(path: Path) -> TextIO:
    """The text of a CSV file that fits into memory: a number takes 8 bytes there, at least 2 in the file."""
    stream = open_file(path)
    try:
        refuse_too_large(4 * os.fstat(stream.fileno()).st_size, str(path))
        return io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    except BaseException:
        stream.close()
        raise


def _read_numbers(path: Path, sign: str, header: bool) -> Table | None:
    """A file of finite numbers only, read fast without a Python object per cell; None for any other file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns about an empty file
            with _text_of(path) as stream:
                names = next(csv.reader(stream, delimiter=sign)) if header else []
                values = np.loadtxt(stream, delimiter=sign, comments=None, quotechar='"', ndmin=2)
    except UsageError:
        raise
    except (ValueError, OSError, Warning, csv.Error, StopIteration):
        return None
    names = names or [str(column) for column in range(values.shape[1])]
    is_plain = len(names) == values.shape[1] > 1 and np.isfinite(values).all()
    if not is_plain or (header and _is_all_numbers(names)):
        return None
    lines = range(1 + header, 1 + header + len(values))
    return Table(path, [name.strip() for name in names], list(np.ascontiguousarray(values.T)), lines, "line")


def _read_cells(path: Path, sign: str, header: bool) -> Table:
    """Any CSV file, cell by cell, with the line of each row."""
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with _text_of(path) as stream:
            reader = csv.reader(stream, delimiter=sign, strict=True)
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {reader.line_num}: not readable as CSV ({error}); correct the line"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); name a readable CSV file") from None
    return _from_rows(path, rows, lines, sign, header)


def _from_rows(path: Path, rows: list[list[str]], lines: list[int], sign: str, header: bool) -> Table:
    if not rows:
        raise UsageError(f"{path}: the file is empty; it needs a row of column names and rows of values")
    _refuse_uneven(path, rows, lines)
    if len(rows[0]) == 1:
        other = next((mark for mark in ";\t,|" if mark != sign and mark in rows[0][0]), None)
        fix = f"set delimiter to {other!r}" if other else "a target and at least one feature are needed"
        raise UsageError(f"{path}: there is only one column, split at {sign!r}; {fix}")
    if not header:
        names = [str(column) for column in range(len(rows[0]))]
        return Table(path, names, [list(cells) for cells in zip(*rows, strict=True)], lines, "line")
    if _is_all_numbers(rows[0]):
        raise UsageError(
            f"{path}: the first row should name the columns, but it holds only numbers "
            f"({', '.join(rows[0][:4])}, …); add names, or set header to false"
        )
    if len(rows) == 1:
        raise UsageError(f"{path}: there are column names but no rows below them; add rows")
    names = [cell.strip() for cell in rows[0]]
    return Table(path, names, [list(cells) for cells in zip(*rows[1:], strict=True)], lines[1:], "line")


def _is_all_numbers(cells: Sequence[str]) -> bool:
    return all(as_number(cell) is not None and cell.strip() for cell in cells)


def _refuse_uneven(path: Path, rows: list[list[str]], lines: list[int]) -> None:
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise UsageError(
                f"{path}, line {line}: the row has {len(row)} cells, the first one has {len(rows[0])}; all "
                "rows must have as many cells"
            )


@register("dataset", "csv", origin="file", input="vector", task="classification or regression")
def csv_file(
    root: Path | None = None,
    *,
    path: str,
    test_path: str | None = None,
    target: str | int = -1,
    task: TaskChoice = "auto",
    ignore: tuple[str | int, ...] = (),
    categorical: tuple[str | int, ...] = (),
    delimiter: Delimiter | None = None,
    header: bool = True,
    allow_missing: bool = False,
) -> Source:
    """A table from a CSV file: one column is the target, the others are features.

    Features must be numbers, or be named as categorical. Classes are numbered in the order of their names,
    or of their values if these are numbers. Empty cells, NA, NaN, null and ? are missing values.

    Args:
        path: The CSV file, in UTF-8.
        test_path: A second file with the same columns for testing; without it a part is split off.
        target: The column to predict, by name or by number from 0; negative numbers count from the end.
        task: `classification`, `regression`, or `auto`: classification if the target is text or has at most
            20 different whole numbers, each occurring twice on average.
        ignore: Columns to leave out, by name or number.
        categorical: Categorical features, by name or number; each of their values becomes an input that is 1
            in the rows with that value and 0 in the others.
        delimiter: The character between cells; by default a comma, or a tab if the file ends in .tsv.
        header: Whether the first row names the columns.
        allow_missing: Whether missing features are replaced by their column's mean in the training part;
            without it they raise an error.

    Reference: RFC 4180, «Common Format and MIME Type for Comma-Separated Values (CSV) Files», 2005.
    """
    table = read_csv(resolve(path, root), delimiter, header)
    test = read_csv(resolve(test_path, root), delimiter, header) if test_path else None
    return to_source(
        table,
        test,
        target=target,
        task=task,
        ignore=ignore,
        categorical=categorical,
        allow_missing=allow_missing,
    )
