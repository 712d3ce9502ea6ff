"""The digits of a comparison: the same for every number in the metric's unit, on the whole page."""

from __future__ import annotations

import math
import statistics

from apoint.report.record import ComparisonRecord
from apoint.report.words import Digits


def digits_of(record: ComparisonRecord) -> Digits:
    """Two digits of the smaller of the interval's half width and the margin."""
    verdict = record.verdict
    scores = [score for score in verdict.baseline if math.isfinite(score)]
    half = (verdict.interval[1] - verdict.interval[0]) / 2
    spreads = [half, verdict.margin]
    if not any(0 < spread < math.inf for spread in spreads) and len(scores) > 1:
        spreads.append(statistics.stdev(scores))
    return Digits.for_spread(spreads, scores)
