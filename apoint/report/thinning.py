"""Fewer points for drawing, with every extreme kept: the smallest and the largest of each bucket."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
THIN_ABOVE = 3000
BUCKETS = 750


def thin(x: Array, *lines: Array) -> tuple[Array, list[Array]]:
    """The points to draw: all of them or, above `THIN_ABOVE`, the extremes of equal buckets of points.

    Each bucket keeps the smallest and the largest value of every line, in their original order, at the x of
    the bucket's first and last point. NaN values do not count; a bucket of nothing else stays a gap.
    """
    if len(x) <= THIN_ABOVE:
        return x, list(lines)
    parts = np.array_split(np.arange(len(x)), BUCKETS)
    places = np.array([place for part in parts for place in (part[0], part[-1])])
    return x[places], [_extremes(line, parts) for line in lines]


def _extremes(line: Array, parts: list[npt.NDArray[Any]]) -> Array:
    pairs = []
    for part in parts:
        values = line[part][~np.isnan(line[part])]
        if not len(values):
            pairs += [np.nan, np.nan]
            continue
        least, most = int(values.argmin()), int(values.argmax())
        pairs += [values[least], values[most]] if least <= most else [values[most], values[least]]
    return np.array(pairs, dtype=np.float64)
