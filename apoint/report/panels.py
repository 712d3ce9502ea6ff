"""What a chart of curves shows, before it is drawn: bands, single lines, limits, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from apoint.report.curves import (
    MOST_SINGLE_LINES,
    Band,
    ComparisonRuns,
    Curve,
    Unit,
    band,
    late_part,
    paired_differences,
)
from apoint.report.record import ComparisonRecord

_LOG_ABOVE = 30.0  # a logarithmic axis, if the largest drawn value is more than this many times the smallest


@dataclass(frozen=True)
class Panel:
    """The curves of one chart.

    Attributes:
        metric: The metric by its surface name, such as `test_accuracy`.
        bands: Bands by arm; one called `candidate` for paired differences.
        lines: The curves that are drawn one by one, by arm: those of arms with few seeds.
        logarithmic: Whether the vertical axis is logarithmic.
        limits: The range of the vertical axis.
    """

    metric: str
    higher_is_better: bool
    unit: Unit
    bands: Mapping[str, Band]
    lines: Mapping[str, tuple[Curve, ...]]
    logarithmic: bool
    limits: tuple[float, float]

    @classmethod
    def of_metric(cls, runs: ComparisonRuns, metric: str, higher_is_better: bool) -> Panel | None:
        """Both arms along training; None if nothing of the metric was logged.

        Args:
            runs: The runs of the comparison.
            metric: The metric by its surface name.
            higher_is_better: The direction of the metric.
        """
        names = ("baseline", "candidate")
        curves = {name: arm.curves(metric, runs.unit) for name, arm in zip(names, runs.arms, strict=True)}
        return cls._of_curves(metric, higher_is_better, runs.unit, curves)

    @classmethod
    def of_difference(
        cls, record: ComparisonRecord, runs: ComparisonRuns, second_half: bool = False
    ) -> Panel | None:
        """The paired differences along training; None if there are none.

        Args:
            record: The comparison.
            runs: Its runs.
            second_half: Whether to take only the second half of training.
        """
        verdict = record.verdict
        curves = paired_differences(runs, verdict.metric, verdict.higher_is_better)
        if second_half:
            curves = [late_part(curve) for curve in curves]
        return cls._of_curves(verdict.metric, True, runs.unit, {"candidate": curves})

    @classmethod
    def _of_curves(
        cls, metric: str, higher_is_better: bool, unit: Unit, curves: Mapping[str, list[Curve | None]]
    ) -> Panel | None:
        bands = {arm: found for arm, each in curves.items() if (found := band(each)) is not None}
        if not bands:
            return None
        lines = {arm: _few(each) for arm, each in curves.items()}
        logarithmic = not higher_is_better and _is_wide(bands.values())
        drawn = [value for each in lines.values() for line in each for value in line.values.tolist()]
        limits = _limits(list(bands.values()), drawn, logarithmic)
        return cls(metric, higher_is_better, unit, bands, lines, logarithmic, limits)

    @property
    def height(self) -> float:
        """How far the vertical axis reaches, including zero."""
        return max(self.limits[1], 0.0) - min(self.limits[0], 0.0)

    @property
    def num_logged(self) -> int:
        """The number of points that the runs logged."""
        return sum(each.num_logged for each in self.bands.values())

    @property
    def num_used(self) -> int:
        """The number of points in the bands."""
        return sum(each.num_used for each in self.bands.values())

    @property
    def num_outside(self) -> int:
        """The number of finite points outside the limits: of single lines, and of the bands' edges."""
        low, high = self.limits
        values = [value for each in self.lines.values() for line in each for value in line.values.tolist()]
        for each in self.bands.values():
            values += [*each.low.tolist(), *each.high.tolist()] if each.has_quantiles else []
        return sum(1 for value in values if math.isfinite(value) and not low <= value <= high)


def _few(curves: Iterable[Curve | None]) -> tuple[Curve, ...]:
    sound = tuple(curve for curve in curves if curve is not None)
    return sound if len(sound) <= MOST_SINGLE_LINES else ()


def _is_wide(bands: Iterable[Band]) -> bool:
    drawn: list[float] = [value for each in bands for value in (*each.low.tolist(), *each.high.tolist())]
    return min(drawn) > 0 and max(drawn) / min(drawn) > _LOG_ABOVE


def _limits(bands: list[Band], drawn: list[float], logarithmic: bool) -> tuple[float, float]:
    """Limits that show bands and single lines, except what is so far away that it would flatten the rest.

    The medians are always inside; the rest may extend beyond them by three times their range, or by ten
    times the usual height of a band if that is more.
    """
    drawn = [value for value in drawn if math.isfinite(value) and (value > 0 or not logarithmic)]
    scale = np.log if logarithmic else np.asarray
    medians, lows, highs = (
        scale(np.concatenate([getattr(each, part) for each in bands])) for part in ("median", "low", "high")
    )
    values = np.concatenate([lows, highs, scale(np.array(drawn))])
    low, high = float(medians.min()), float(medians.max())
    beyond = max(3 * (high - low), 10 * float(np.median(highs - lows)))
    low, high = max(float(values.min()), low - beyond), min(float(values.max()), high + beyond)
    low, high = padded(low, high, 0.05)
    return (math.exp(low), math.exp(high)) if logarithmic else (low, high)


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """Limits with some padding around two values, even if they are equal."""
    span = high - low
    air = span * share if span > 0 else max(abs(low) * 0.02, 1e-9)
    return low - air, high + air
