"""Both arms' results on single examples, pair by pair: the basis for the noise of the test examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apoint.errors import DamagedError
from apoint.store import ExampleResults, Run
from apoint.verdict import ExampleNoise, example_noise

LAST_ALONE = "results of single examples are kept of the last evaluation alone, and this is a mean of several"
TOO_FEW = "fewer than two pairs have finished in both arms"


@dataclass
class PairedExamples:
    """The differences on single examples of the pairs trained so far.

    Attributes:
        missing: Why some pair has none although both of its replicas finished; empty if all have them.
    """

    missing: str = ""
    _differences: list[Any] = field(default_factory=list)
    _rows: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._differences)

    def add(self, runs: tuple[Run, Run], metrics: tuple[str, str]) -> None:
        """Add a pair: baseline and candidate, each with the metric that it is measured by."""
        if any(run.state != "finished" for run in runs):
            self._add(None, None)
            return
        found = [run.examples(metric) for run, metric in zip(runs, metrics, strict=True)]
        for run, metric, results in zip(runs, metrics, found, strict=True):
            if results is None:
                self.missing = self.missing or f"{run.folder.name} keeps no {metric} of single examples"
        if found[0] is None or found[1] is None:
            self._add(None, None)
            return
        _check_same(runs, found[0], found[1])
        difference = found[1].values - found[0].values
        # A non-finite value is not a replica's number either: it counts as failed.
        self._add(difference if np.isfinite(difference).all() else None, found[0].rows)

    def _add(self, difference: Any, rows: Any) -> None:
        self._differences.append(difference)
        self._rows.append(rows)

    def noise(self) -> ExampleNoise | None:
        """The noise of the examples in all pairs; None if results of some are missing."""
        return None if self.missing else example_noise(self._differences, self._rows)


def _check_same(runs: tuple[Run, Run], first: ExampleResults, second: ExampleResults) -> None:
    """Reject a pair whose replicas were measured on different examples."""
    if not np.array_equal(_names(first), _names(second)):
        names = " and ".join(run.folder.name for run in runs)
        raise DamagedError(f"{names} were measured on different examples and are no pair; train both again")


def _names(results: ExampleResults) -> Any:
    return np.arange(len(results.values)) if results.rows is None else results.rows
