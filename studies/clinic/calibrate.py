"""From results on the calibration split to what the doctor knows: healthy ranges, and trust in each code.

    python -m studies.clinic.calibrate healthy.jsonl faulty.jsonl --out apoint/doctor/healthy.json

Each sign gets its quantiles over the healthy patients and two bounds. A bound is the extreme quantile (1 % or
99 %), moved outwards by half of the distance from the median to it, but never inside the most extreme healthy
value seen. Signs that are all positive and span more than a factor of three are treated on a logarithmic
scale. With n patients the 99 % quantile rests on about n / 100 of them, so n is written beside it.

For each code it is counted on how many patients it was raised, and on how many of them it was right.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from studies.clinic.pool import Record, read
from studies.clinic.rates import CRASH, alarms

QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
WIDENING = 0.5
WIDE_SPAN = 3.0


def healthy_signs(records: Iterable[Record]) -> dict[str, list[float]]:
    """The values of each sign over the healthy patients that did not crash."""
    signs: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.get("fault") is not None or "crash" in record:
            continue
        for name, value in record["signs"].items():
            if value is not None:
                signs[name].append(_number(value))
    return dict(signs)


def _number(value: Any) -> float:
    """A number from JSON, where what is not finite is a word."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def healthy_range(values: Iterable[float]) -> dict[str, float | int | str | None]:
    """One sign's row of the table: count, extremes, quantiles, and the widened bounds."""
    given = np.asarray(list(values), dtype=np.float64)
    finite = np.sort(given[np.isfinite(given)])
    row: dict[str, float | int | str | None] = {"n": len(given), "not_finite": int(len(given) - len(finite))}
    if not len(finite):
        return {**row, "lower": None, "upper": None}
    row |= {"min": float(finite[0]), "max": float(finite[-1])}
    row |= {f"q{round(100 * share)}": float(np.quantile(finite, share)) for share in QUANTILES}
    logarithmic = bool(finite[0] > 0 and finite[-1] > WIDE_SPAN * finite[0])
    lower, upper = _bounds(np.log(finite) if logarithmic else finite)
    if logarithmic:
        lower, upper = math.exp(lower), math.exp(upper)
    return {**row, "scale": "log" if logarithmic else "linear", "lower": lower, "upper": upper}


def _bounds(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float]:
    low, middle, high = (float(np.quantile(values, share)) for share in (0.01, 0.5, 0.99))
    lower = min(low - WIDENING * (middle - low), float(values.min()))
    upper = max(high + WIDENING * (high - middle), float(values.max()))
    return lower, upper


def table(signs: Mapping[str, Iterable[float]]) -> dict[str, dict[str, float | int | str | None]]:
    """The healthy range of each sign, by name."""
    return {name: healthy_range(values) for name, values in sorted(signs.items())}


def raised(records: Iterable[Record]) -> dict[str, dict[str, int]]:
    """For each code at warning level or above: on how many patients it was raised, and right."""
    counts: dict[str, dict[str, int]] = {}
    for record in records:
        for code in set(alarms(record)) - {CRASH}:
            row = counts.setdefault(code, {"raised": 0, "right": 0})
            row["raised"] += 1
            row["right"] += code in record["accepted"]
    return dict(sorted(counts.items()))


def main() -> None:
    """Read results, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="files that `studies.clinic.run` wrote")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    records = [record for path in options.results for record in read(path)]
    ranges = table(healthy_signs(records))
    written = {
        "from": "python -m studies.clinic.calibrate",
        "patients": sum(record.get("fault") is None for record in records),
        "signs": ranges,
        "raised": raised(records),
    }
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    for name, row in ranges.items():
        print(f"{name:40} n {row['n']:4}  healthy from {row['lower']} to {row['upper']}")


if __name__ == "__main__":
    main()
