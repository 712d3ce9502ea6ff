"""Outcomes that come with the package: long-running claims, run once at scale `standard`.

Pages show them with their version and date, so that a reader sees verdicts, numbers and figures without
running anything. Running a claim at that scale saves a record, which then replaces the published one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apoint.book.outcome import Outcome
from apoint.store.files import write_atomically

FILE = Path(__file__).parent / "published.jsonl"
_DIGITS = 5  # of the values in pictures; more cannot be seen


def published(file: Path | None = None) -> dict[str, Outcome]:
    """The outcomes by claim; empty if the package has none."""
    file = file or FILE
    if not file.exists():
        return {}
    outcomes = (Outcome.from_plain(json.loads(line)) for line in file.read_text("utf-8").splitlines())
    return {outcome.id: outcome for outcome in outcomes}


def publish(outcomes: Iterable[Outcome], file: Path | None = None) -> None:
    """Add outcomes to the file; those of other claims stay."""
    file = file or FILE
    known = {**published(file), **{outcome.id: outcome for outcome in outcomes}}
    lines = []
    for id in sorted(known):
        plain = known[id].to_plain()
        plain["pictures"] = _rounded(plain["pictures"])
        lines.append(json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    write_atomically(file, "".join(f"{line}\n" for line in lines))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
