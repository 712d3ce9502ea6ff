"""The metrics of a run: rows as they were logged, and the curves through them.

A row is `{"step": 120, "epoch": 3.0, "split": "test", "time": …, "seconds": …, "loss": …, "accuracy": …}`;
on every surface a metric is called by its split and its name, such as `test_accuracy`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from apoint.errors import UnknownNameError, UsageError
from apoint.store.lines import NOT_FINITE, read_lines

Row = dict[str, Any]
SPLITS = ("train", "validation", "test")
FRAME = ("step", "epoch", "split", "time", "seconds")  # what a row has besides its metrics
_SMALLER_IS_BETTER = ("loss", "error", "perplexity", "divergence", "nll")
_LARGER_IS_BETTER = ("accuracy", "auc", "f1", "precision", "recall", "r2")


class Point(NamedTuple):
    """One point of a curve."""

    step: int
    value: float


class Metrics(Sequence[Row]):
    """The rows of a run in order of steps, each (split, step) once.

    A resumed run logs the steps after its checkpoint again; the row written last is kept.

    Attributes:
        torn: How many lines of the file were unreadable, as the last one is after a crash.
    """

    def __init__(self, rows: Iterable[Row], torn: int = 0, where: str = "") -> None:
        latest: dict[tuple[str, int], Row] = {}
        self.torn, self._where = torn, where
        for row in rows:
            step, split = row.get("step"), row.get("split")
            if not isinstance(step, int) or not isinstance(split, str):
                self.torn += 1
                continue
            latest[split, step] = _with_floats(row)
        self._rows = sorted(latest.values(), key=_step)
        self._curves = _curves(self._rows)

    @classmethod
    def read(cls, path: Path) -> Metrics:
        """The metrics in a `metrics.jsonl`; empty if there is no file."""
        return cls(*read_lines(path), where=path.parent.name)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        torn = f", {self.torn} torn" if self.torn else ""
        return f"Metrics({len(self)} rows{torn}: {', '.join(self.names)})"

    @property
    def names(self) -> list[str]:
        """Every curve by its surface name, such as `test_accuracy`; those of the test split first."""
        order = {split: rank for rank, split in enumerate(reversed(SPLITS))}
        keys = sorted(self._curves, key=lambda key: (order.get(key[0], len(order)), key[1]))
        return [f"{split}_{name}" for split, name in keys]

    def series(self, name: str, split: str = "test") -> tuple[list[int], list[float]]:
        """The steps and values of one curve.

        Args:
            name: The metric, such as `accuracy`; or its surface name, such as `train_accuracy`, which
                says the split as well.
            split: Which part of the data it was measured on.
        """
        steps, values = self._curve(name, split)
        return list(steps), list(values)

    def last(self, name: str, split: str = "test") -> float:
        """The value at the last step at which the metric was logged."""
        return self._curve(name, split)[1][-1]

    def final(self) -> dict[str, float]:
        """The last value of every curve by its surface name."""
        return {name: self.last(name) for name in self.names}

    def best(self, name: str, split: str = "test", higher_is_better: bool | None = None) -> Point:
        """The best point of a curve, the earliest of equals; points that are not numbers do not count.

        Args:
            name: The metric, as in `series`.
            split: Which part of the data it was measured on.
            higher_is_better: The direction; may be left out for a loss, an error, an accuracy.
        """
        if higher_is_better is None:
            higher_is_better = _direction(name)
        points = [Point(*pair) for pair in zip(*self._curve(name, split), strict=True)]
        numbers = [point for point in points if not math.isnan(point.value)]
        if not numbers:
            return points[-1]
        sign = 1 if higher_is_better else -1
        return max(numbers, key=lambda point: sign * point.value)

    def _curve(self, name: str, split: str) -> tuple[list[int], list[float]]:
        found = self._curves.get((split, name))
        if found is None:
            prefix, _, rest = name.partition("_")
            found = self._curves.get((prefix, rest))
        if found is None:
            known = set(self.names) | {each for (where, each) in self._curves if where == split}
            raise UnknownNameError("metric", name, known, self._where)
        return found


def _step(row: Row) -> int:
    step: int = row["step"]
    return step


def _with_floats(row: Row) -> Row:
    """The row with "NaN", "Infinity" and "-Infinity" turned back into numbers."""
    for key, value in row.items():
        if isinstance(value, str) and key != "split" and value in NOT_FINITE:
            row[key] = NOT_FINITE[value]
    return row


def _curves(rows: list[Row]) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    curves: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name in FRAME or not isinstance(value, int | float):
                continue
            key = (row["split"], name)
            if key not in curves:
                curves[key] = ([], [])
            steps, values = curves[key]
            steps.append(row["step"])
            values.append(value)
    return curves


def _direction(name: str) -> bool:
    words = name.lower().replace("-", "_").split("_")
    if any(word in words for word in _SMALLER_IS_BETTER):
        return False
    if any(word in words for word in _LARGER_IS_BETTER):
        return True
    raise UsageError(f"is a higher {name} better? say so with higher_is_better=True or False")
