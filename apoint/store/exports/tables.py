"""Metrics as one long table, one row per number: run, seed, split, step, epoch, metric, value."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apoint.errors import ApointError
from apoint.store.files import new_file
from apoint.store.lines import spelling
from apoint.store.metrics import FRAME
from apoint.store.run import Run

COLUMNS = ("run", "seed", "split", "step", "epoch", "metric", "value")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
Record = tuple[str, int | None, str, int, float | None, str, float]


def records(runs: Iterable[Run]) -> Iterator[Record]:
    """The rows of the long table, run by run, in step order."""
    for run in runs:
        name, seed = run.folder.name, run.seed
        for row in run.metrics:
            for metric, value in row.items():
                if metric not in FRAME and isinstance(value, int | float):
                    yield name, seed, row["split"], row["step"], row.get("epoch"), metric, value


def to_csv(runs: Sequence[Run], path: str | os.PathLike[str], force: bool = False) -> int:
    """Write the metrics of some runs as a CSV file, and return the number of rows.

    Numbers are written exactly, non-finite ones as NaN, Infinity and -Infinity. Text that a spreadsheet would
    take for a formula is prefixed with an apostrophe.

    Args:
        runs: The runs.
        path: The file to write.
        force: Whether an existing file may be replaced.
    """
    with new_file(Path(path), force) as stream:
        text = io.TextIOWrapper(stream, "utf-8", errors="replace", newline="", write_through=True)
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        count = 0
        for record in records(runs):
            writer.writerow([_cell(value) for value in record])
            count += 1
        text.detach()
    return count


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    return spelling(value)


def to_parquet(runs: Sequence[Run], path: str | os.PathLike[str], force: bool = False) -> int:
    """Write the metrics of some runs as a Parquet file, and return the number of rows.

    Args:
        runs: The runs.
        path: The file to write.
        force: Whether an existing file may be replaced.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise ApointError(
            "Parquet files need pyarrow; install it with: pip install apoint[parquet]"
        ) from None
    columns: list[list[Any]] = [list(column) for column in zip(*records(runs), strict=True)] or [
        [] for _ in COLUMNS
    ]
    text = arrow.dictionary(arrow.int32(), arrow.string())
    types = (text, arrow.int64(), text, arrow.int64(), arrow.float64(), text, arrow.float64())
    columns[-1] = [float(value) for value in columns[-1]]
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    with new_file(Path(path), force) as stream:
        parquet.write_table(arrow.Table.from_arrays(arrays, names=COLUMNS), stream)
    return len(columns[0])
