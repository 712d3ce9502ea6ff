"""The metrics of a run: the logged rows, and the curves through them.

A row is `{"step": 120, "epoch": 3.0, "split": "test", "time": …, "seconds": …, "loss": …, "accuracy": …}`;
the surface name of a metric, used everywhere, is its split and its name, such as `test_accuracy`.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, overload

from apoint.errors import StorageError, UnknownNameError, UsageError
from apoint.store import reader
from apoint.store.lines import NOT_FINITE
from apoint.store.status import whole

Row = dict[str, Any]
SPLITS = ("train", "validation", "test")
FRAME = ("step", "epoch", "split", "time", "seconds")  # what a row has besides its metrics
MOST_CURVES = 10_000
_LARGEST = 10**300  # larger integers do not fit into a float
_SMALLER_IS_BETTER = ("loss", "error", "perplexity", "divergence", "nll")
_LARGER_IS_BETTER = ("accuracy", "auc", "f1", "precision", "recall", "r2")


class Point(NamedTuple):
    """One point of a curve."""

    step: int
    value: float


class _Column:
    """The values of one field in those rows of a split that have it, in row order.

    A value takes eight bytes; a million rows as dictionaries would take a gigabyte. `rows` holds which rows
    these are; None while they are the first ones without a gap, as is usual.
    """

    def __init__(self) -> None:
        self.rows: array[int] | None = None
        self.values: array[float] | list[int | float] = array("d")

    def add(self, row: int, value: int | float) -> None:
        if type(value) is not float and isinstance(self.values, array):
            self.values = list(self.values)  # integers stay integers
        if self.rows is not None:
            self.rows.append(row)
        elif row != len(self.values):
            self.rows = array("q", [*range(len(self.values)), row])
        self.values.append(value)

    def at(self, row: int) -> int | float | None:
        place = row if self.rows is None else bisect_left(self.rows, row)
        if place >= len(self.values) or (self.rows is not None and self.rows[place] != row):
            return None
        return self.values[place]

    def keep(self, rows: Sequence[int]) -> _Column:
        """The same field for some rows, in the order given."""
        kept = _Column()
        for number, row in enumerate(rows):
            value = self.at(row)
            if value is not None:
                kept.add(number, value)
        return kept


class _Table:
    """The rows of one split, column by column."""

    def __init__(self) -> None:
        self.steps = array("q")
        self.columns: dict[str, _Column] = {}
        self.in_order = True

    def add(self, step: int, row: Row) -> None:
        number = len(self.steps)
        self.in_order = self.in_order and (number == 0 or self.steps[-1] < step)
        self.steps.append(step)
        for name, value in row.items():
            if name == "step" or name == "split":
                continue
            checked = value if type(value) is float else _number(value)
            if checked is not None:
                column = self.columns.get(name) or self.columns.setdefault(name, _Column())
                column.add(number, checked)

    def settle(self) -> None:
        """Sort the rows by step and keep the last of each step."""
        if self.in_order:
            return
        latest = {step: number for number, step in enumerate(self.steps)}
        rows = [latest[step] for step in sorted(latest)]
        self.steps = array("q", sorted(latest))
        self.columns = {name: column.keep(rows) for name, column in self.columns.items()}

    def row(self, number: int, split: str) -> Row:
        row: Row = {"step": self.steps[number], "split": split}
        for name, column in self.columns.items():
            value = column.at(number)
            if value is not None:
                row[name] = value
        return row

    def curve(self, name: str) -> tuple[list[int], list[float]] | None:
        column = self.columns.get(name) if name not in FRAME else None
        if column is None:
            return None
        steps = (
            self.steps[: len(column.values)]
            if column.rows is None
            else map(self.steps.__getitem__, column.rows)
        )
        return list(steps), list(column.values)


class Metrics(Sequence[Row]):
    """The rows of a run in step order, each (split, step) once; of duplicates, the one written last.

    Attributes:
        torn: The number of unreadable lines in the file, such as the last one after a crash.
    """

    def __init__(self, rows: Iterable[Row | None], where: str = "") -> None:
        self.torn, self._where = 0, where
        self._tables: dict[str, _Table] = {}
        for row in rows:
            self._add(row)
        for table in self._tables.values():
            table.settle()
        self._order: tuple[list[str], array[int], array[int]] | None = None

    def _add(self, row: Row | None) -> None:
        split = row.get("split") if row else None
        step = whole(row.get("step")) if row else None
        if row is None or not isinstance(split, str) or step is None or step < 0:
            self.torn += 1
            return
        if split not in self._tables:
            self._tables[split] = _Table()
        self._tables[split].add(step, row)
        if len(self._tables) > MOST_CURVES or len(self._tables[split].columns) > MOST_CURVES:
            raise StorageError(f"{self._where} has more than {MOST_CURVES:,} curves; no run of ours has")

    @classmethod
    def read(cls, path: Path, digest: Any = None) -> Metrics:
        """The metrics in a `metrics.jsonl`.

        Args:
            path: The file.
            digest: A hash that is updated with every byte, as in `reader.rows`.
        """
        return cls(reader.rows(path, digest), where=path.parent.name)

    def _places(self) -> tuple[list[str], array[int], array[int]]:
        """The splits, and for each row, in step order, its split and its number in it."""
        if self._order is None:
            splits, owners, numbers = list(self._tables), array("H"), array("q")
            steps = (zip(self._tables[split].steps, repeat(owner)) for owner, split in enumerate(splits))
            seen = [0] * len(splits)
            for _, owner in heapq.merge(*steps):
                owners.append(owner)
                numbers.append(seen[owner])
                seen[owner] += 1
            self._order = splits, owners, numbers
        return self._order

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        splits, owners, numbers = self._places()
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        split = splits[owners[index]]
        return self._tables[split].row(numbers[index], split)

    def __len__(self) -> int:
        return sum(len(table.steps) for table in self._tables.values())

    def __iter__(self) -> Iterator[Row]:
        merged = heapq.merge(*map(self._in_order, self._tables), key=lambda row: row["step"])
        return iter(merged)

    def _in_order(self, split: str) -> Iterator[Row]:
        table = self._tables[split]
        return (table.row(number, split) for number in range(len(table.steps)))

    def __repr__(self) -> str:
        torn = f", {self.torn} torn" if self.torn else ""
        return f"Metrics({len(self)} rows{torn}: {', '.join(self.names)})"

    @property
    def names(self) -> list[str]:
        """Every curve by its surface name, such as `test_accuracy`; those of the test split first."""
        order = {split: rank for rank, split in enumerate(reversed(SPLITS))}
        keys = [
            (split, name)
            for split, table in self._tables.items()
            for name in table.columns
            if name not in FRAME
        ]
        keys.sort(key=lambda key: (order.get(key[0], len(order)), key[1]))
        return [f"{split}_{name}" for split, name in keys]

    def series(self, name: str, split: str = "test") -> tuple[list[int], list[float]]:
        """The steps and values of one curve.

        Args:
            name: The metric, such as `accuracy`; or its surface name, such as `train_accuracy`, which
                includes the split.
            split: The part of the data it was measured on.
        """
        for where, what in ((split, name), (name.partition("_")[0], name.partition("_")[2])):
            found = self._tables[where].curve(what) if where in self._tables else None
            if found is not None:
                return found
        here = self._tables.get(split)
        known = {*self.names, *(each for each in (here.columns if here else ()) if each not in FRAME)}
        raise UnknownNameError("metric", name, known, self._where)

    def last(self, name: str, split: str = "test") -> float:
        """The value at the last step at which the metric was logged."""
        return self.series(name, split)[1][-1]

    def final(self) -> dict[str, float]:
        """The last value of every curve by its surface name."""
        return {name: self.last(name) for name in self.names}

    def at(self, step: int | None) -> dict[str, float]:
        """The values logged at one step, by surface name; empty if there are none or the step is unknown."""
        found: dict[str, float] = {}
        if step is None:
            return found
        for split, table in self._tables.items():
            number = bisect_left(table.steps, step)
            if number < len(table.steps) and table.steps[number] == step:
                row = table.row(number, split)
                found |= {f"{split}_{name}": value for name, value in row.items() if name not in FRAME}
        return found

    @property
    def last_step(self) -> int | None:
        """The last step at which anything was logged."""
        return max((table.steps[-1] for table in self._tables.values()), default=None)

    @property
    def seconds(self) -> float | None:
        """The training time at the last row that has one."""
        columns = [table.columns.get("seconds") for table in self._tables.values()]
        return max((column.values[-1] for column in columns if column), default=None)

    def best(self, name: str, split: str = "test", higher_is_better: bool | None = None) -> Point:
        """The best point of a curve, the earliest among ties; NaN values do not count.

        Args:
            name: The metric, as in `series`.
            split: The part of the data it was measured on.
            higher_is_better: The direction; may be omitted for a loss, an error or an accuracy.
        """
        if higher_is_better is None:
            higher_is_better = _direction(name)
        points = [Point(*pair) for pair in zip(*self.series(name, split), strict=True)]
        numbers = [point for point in points if not math.isnan(point.value)]
        if not numbers:
            return points[-1]
        sign = 1 if higher_is_better else -1
        return max(numbers, key=lambda point: sign * point.value)


def _number(value: Any) -> int | float | None:
    """A value as a number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else None
    return NOT_FINITE.get(value) if isinstance(value, str) else None


def _direction(name: str) -> bool:
    words = name.lower().replace("-", "_").split("_")
    if any(word in words for word in _SMALLER_IS_BETTER):
        return False
    if any(word in words for word in _LARGER_IS_BETTER):
        return True
    raise UsageError(f"is a higher {name} better? say so with higher_is_better=True or False")
