"""Runs the doctor over the clinic's patients, in processes, and writes one line of JSON for each.

    python -m studies.clinic.run --split publication --out results.jsonl [--kind healthy dead-units]
    python -m studies.clinic.run --split calibration --kind healthy --thorough --out healthy.jsonl

Patients that the file already holds are left out, so a run can be interrupted; a failure of the doctor, or of
the process it runs in, is recorded as a crash of that patient.
"""

from __future__ import annotations

import argparse
import math
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

from studies.clinic.faults import faults, faulty
from studies.clinic.patients import Patient, Split, healthy
from studies.clinic.pool import Record, work_through

HEALTHY = "healthy"
SPLITS: tuple[Split, ...] = ("calibration", "publication")


@cache
def everybody() -> dict[str, Patient]:
    """All patients of both splits, by name."""
    return {patient.name: patient for split in SPLITS for patient in [*healthy(split), *faulty(split)]}


def examine(name: str, **how: bool) -> Record:
    """Let the doctor see one patient; for a process of the pool.

    Args:
        name: The patient.
        **how: `quick` or `thorough`, for `apoint.inspect`.
    """
    import apoint

    patient = everybody()[name]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        report = apoint.inspect(**patient.arguments(), **how)
    return summary(report)


def identity(name: str) -> Record:
    """Who a record is about, and what the doctor should have found."""
    patient = everybody()[name]
    return {
        "architecture": patient.architecture,
        "dataset": patient.dataset,
        "seed": patient.seed,
        "fault": patient.fault,
        "accepted": list(patient.accepted),
    }


def summary(report: Any) -> Record:
    """The codes that were found, most probable cause first, and the signs that they were found from."""
    findings = [
        {
            "code": finding.code,
            "layer": finding.layer,
            "value": plain(finding.value),
            "confidence": plain(finding.confidence),
            "level": str(getattr(finding, "level", "warning")),
        }
        for finding in report.findings
    ]
    return {"findings": findings, "signs": {name: plain(value) for name, value in report.signs.items()}}


def plain(value: Any) -> float | str | None:
    """A number as JSON can hold it; what is not finite becomes a word."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if math.isfinite(number) else str(number)


def patients(split: Split, kinds: list[str] | None = None) -> list[Patient]:
    """A split's patients, the healthy first; of all kinds, or of some."""
    known = {HEALTHY, *faults()}
    if unknown := set(kinds or ()) - known:
        raise SystemExit(f"unknown kind {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    everyone = [*healthy(split), *faulty(split)]
    return [patient for patient in everyone if not kinds or (patient.fault or HEALTHY) in kinds]


def main() -> None:
    """Examine the patients that the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", nargs="*", help="kinds of fault, and `healthy`; all if not given")
    parser.add_argument("--limit", type=int, help="only the first so many patients")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th patient")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="the doctor's quick examination")
    parser.add_argument("--thorough", action="store_true", help="all evidence, whatever was found before")
    options = parser.parse_args()
    chosen = patients(options.split, options.kind)[:: options.every][: options.limit]
    work = partial(examine, quick=options.quick, thorough=options.thorough)
    names = [patient.name for patient in chosen]
    records = work_through(names, work, options.out, options.workers, identity)
    crashed = sum("crash" in record for record in records)
    print(f"{len(records)} patients in {options.out}, of which {crashed} crashed")


if __name__ == "__main__":
    main()
