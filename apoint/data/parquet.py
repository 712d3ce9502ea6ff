"""Tables from Parquet files, with the types stated in the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from apoint.data.core import Source
from apoint.data.locate import open_file, resolve
from apoint.data.memory import refuse_too_large
from apoint.data.tables import Table, TaskChoice, to_source
from apoint.errors import UsageError, one_line
from apoint.registry import register


def read_parquet(path: Path) -> Table:
    """A Parquet file as a table; needs pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            f"{path}: reading Parquet needs pyarrow, which is not installed; install it with "
            "'pip install apoint[parquet]', or save the table as CSV"
        ) from None
    try:
        with open_file(path) as stream:
            file = pyarrow.parquet.ParquetFile(stream)
            refuse_too_large(_parquet_bytes(file.metadata), str(path))
            table = file.read()
        if not table.num_rows or not table.num_columns:
            raise UsageError(f"{path}: the file is empty; it needs columns and rows of values")
        columns = [_cells(column, pyarrow.types) for column in table.columns]
    except UsageError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = one_line(str(error).split("\n", 1)[0][:200])
        raise UsageError(f"{path}: not readable as Parquet ({reason}); name a whole Parquet file") from None
    return Table(path, list(table.column_names), columns, range(1, table.num_rows + 1), "row")


def _parquet_bytes(metadata: Any) -> int:
    """A file's size in memory according to its metadata: repeated values are stored once, read in full."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    unpacked: int = sum(abs(group.total_byte_size) for group in groups)
    cells: int = abs(metadata.num_rows) * metadata.num_columns
    return max(unpacked, 8 * cells)


def _cells(column: Any, types: Any) -> Sequence[Any] | npt.NDArray[Any]:
    """A column's cells; numbers as an array, with NaN for missing ones."""
    if types.is_integer(column.type) or types.is_floating(column.type):
        array: npt.NDArray[Any] = column.to_numpy()
        return array
    cells: list[Any] = column.to_pylist()
    return cells


@register("dataset", "parquet", origin="file", input="vector", task="classification or regression")
def parquet_file(
    root: Path | None = None,
    *,
    path: str,
    test_path: str | None = None,
    target: str | int = -1,
    task: TaskChoice = "auto",
    ignore: tuple[str | int, ...] = (),
    categorical: tuple[str | int, ...] = (),
    allow_missing: bool = False,
) -> Source:
    """A table from a Parquet file: one column is the target, the others are features.

    Like the dataset `csv`, with the types stated in the file. Needs pyarrow, an optional dependency
    (`pip install apoint[parquet]`).

    Args:
        path: The Parquet file.
        test_path: A second file with the same columns for testing; without it a part is split off.
        target: The column to predict, by name or by number from 0; negative numbers count from the end.
        task: `classification`, `regression`, or `auto`: classification if the target is text or has at most
            20 different whole numbers, each occurring twice on average.
        ignore: Columns to leave out, by name or number.
        categorical: Categorical features, by name or number; each of their values becomes an input that is 1
            in the rows with that value and 0 in the others.
        allow_missing: Whether missing features are replaced by their column's mean in the training part;
            without it they raise an error.

    Reference: Apache Parquet, parquet.apache.org.
    """
    table = read_parquet(resolve(path, root))
    test = read_parquet(resolve(test_path, root)) if test_path else None
    return to_source(
        table,
        test,
        target=target,
        task=task,
        ignore=ignore,
        categorical=categorical,
        allow_missing=allow_missing,
    )
