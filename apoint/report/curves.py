"""The runs of a comparison as curves: what each logged, bands over seeds, and paired differences.

Nothing is smoothed, and a statistic of one arm is computed from that arm alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from apoint.errors import ApointError
from apoint.report import fields
from apoint.report.record import ArmRecord, ComparisonRecord
from apoint.report.thinning import Array
from apoint.store import Metrics, Run

QUANTILES = (0.1, 0.9)
FEWEST_FOR_BAND = 5  # quantiles of fewer seeds mean nothing; single seeds are drawn then
MOST_SINGLE_LINES = 8
Unit = Literal["epochs", "steps"]


@dataclass(frozen=True)
class Curve:
    """The values of one metric that one run logged, by epoch or step; non-finite values are kept."""

    seed: int | None
    x: Array
    values: Array


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm that can be read; None in place of one that cannot."""

    arm: ArmRecord
    metrics: tuple[Metrics | None, ...]
    environments: tuple[dict[str, Any], ...]
    seeds: tuple[int | None, ...]

    @property
    def num_missing(self) -> int:
        """The number of named runs that cannot be read."""
        return sum(1 for each in self.metrics if each is None)

    def curves(self, metric: str, unit: Unit) -> list[Curve | None]:
        """The curve of every run, in seed order; None where there is none."""
        pairs = zip(self.metrics, self.seeds, strict=True)
        return [
            _curve(metrics, metric, unit, seed) if metrics is not None else None for metrics, seed in pairs
        ]


@dataclass(frozen=True)
class ComparisonRuns:
    """The runs of both arms, each file read once."""

    baseline: ArmRuns
    candidate: ArmRuns
    unit: Unit

    @classmethod
    def read(cls, record: ComparisonRecord) -> ComparisonRuns:
        """Every run that the comparison names and that is still there."""
        budget = fields.mapping(record.declaration.get("budget"))
        unit: Unit = "steps" if "steps" in budget else "epochs"
        return cls(_read_arm(record, record.baseline), _read_arm(record, record.candidate), unit)

    @property
    def arms(self) -> tuple[ArmRuns, ArmRuns]:
        """Baseline and candidate."""
        return self.baseline, self.candidate

    @property
    def num_named(self) -> int:
        """The number of runs that the comparison names."""
        return sum(len(arm.metrics) for arm in self.arms)

    @property
    def num_missing(self) -> int:
        """The number of them that cannot be read."""
        return sum(arm.num_missing for arm in self.arms)


def _read_arm(record: ComparisonRecord, arm: ArmRecord) -> ArmRuns:
    """Read the runs that the verdict used; all of them while there is no verdict."""
    used = arm.runs[: record.verdict.pairs] if record.verdict.pairs else arm.runs
    found = [_read_run(record, name) for name in used]
    seeds = record.verdict.seeds
    return ArmRuns(
        arm=arm,
        metrics=tuple(metrics for metrics, _ in found),
        environments=tuple(environment for _, environment in found if environment),
        seeds=tuple(seeds[place] if place < len(seeds) else None for place in range(len(found))),
    )


def _read_run(record: ComparisonRecord, name: str) -> tuple[Metrics | None, dict[str, Any]]:
    """The metrics and environment of a sealed run; a missing or damaged run must not hide the others."""
    folder = record.run_folder(name)
    if folder is None:
        return None, {}
    try:
        run = Run(folder)
        return (run.metrics, run.env) if run.sealed else (None, {})
    except ApointError:
        return None, {}


def _curve(metrics: Metrics, metric: str, unit: Unit, seed: int | None) -> Curve | None:
    split, _, name = metric.partition("_")
    key = "step" if unit == "steps" else "epoch"
    points = [
        (fields.number(row.get(key)), float(row[name]))
        for row in metrics
        if row["split"] == split and isinstance(row.get(name), int | float)
    ]
    points = [(x, value) for x, value in points if np.isfinite(x)]
    if not points:
        return None
    x, values = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    return Curve(seed, x, values)


@dataclass(frozen=True)
class Band:
    """Median and quantiles over seeds at each place, and how many seeds there were.

    Attributes:
        num_logged: The number of points that the runs logged.
        num_used: The number of finite points at places where at least half of the runs logged.
    """

    x: Array
    median: Array
    low: Array
    high: Array
    seeds: tuple[int, ...]
    num_curves: int
    num_logged: int
    num_used: int

    @property
    def has_quantiles(self) -> bool:
        """Whether there are enough seeds for quantiles to mean something."""
        return self.num_curves >= FEWEST_FOR_BAND


def band(curves: Iterable[Curve | None]) -> Band | None:
    """The band of several runs' curves; None if there is nothing finite to draw."""
    sound = [curve for curve in curves if curve is not None]
    logged = Counter(x for curve in sound for x in curve.x.tolist())
    grid = [x for x in sorted(logged) if 2 * logged[x] >= len(sound)]
    values_SX = np.array([_on_grid(curve, grid) for curve in sound]).reshape(len(sound), len(grid))
    finite_SX = np.isfinite(values_SX)
    columns = np.flatnonzero(finite_SX.any(axis=0))
    if not len(columns):
        return None
    parts = [values_SX[finite_SX[:, column], column] for column in columns]
    quantiles = np.array([np.quantile(part, (QUANTILES[0], 0.5, QUANTILES[1])) for part in parts])
    return Band(
        x=np.array(grid)[columns],
        median=quantiles[:, 1],
        low=quantiles[:, 0],
        high=quantiles[:, 2],
        seeds=tuple(len(part) for part in parts),
        num_curves=len(sound),
        num_logged=sum(logged.values()),
        num_used=int(finite_SX.sum()),
    )


def _on_grid(curve: Curve, grid: Sequence[float]) -> list[float]:
    known = dict(zip(curve.x.tolist(), curve.values.tolist(), strict=True))
    return [known.get(x, np.nan) for x in grid]


def paired_differences(runs: ComparisonRuns, metric: str, higher_is_better: bool) -> list[Curve | None]:
    """The difference of each pair along training, where both logged; positive favours the candidate."""
    sign = 1.0 if higher_is_better else -1.0
    arms = zip(*(arm.curves(metric, runs.unit) for arm in runs.arms), strict=False)
    return [_difference(first, second, sign) for first, second in arms]


def late_part(curve: Curve | None) -> Curve | None:
    """The second half of a curve; None if it has fewer than two points there."""
    if curve is None:
        return None
    late = curve.x >= curve.x[-1] / 2
    return Curve(curve.seed, curve.x[late], curve.values[late]) if late.sum() > 1 else None


def _difference(baseline: Curve | None, candidate: Curve | None, sign: float) -> Curve | None:
    if baseline is None or candidate is None:
        return None
    x, first, second = np.intersect1d(baseline.x, candidate.x, return_indices=True)
    with np.errstate(invalid="ignore"):  # a difference of infinities is NaN, and is not drawn
        values = sign * (candidate.values[second] - baseline.values[first])
    return Curve(baseline.seed, x, values) if len(x) else None
