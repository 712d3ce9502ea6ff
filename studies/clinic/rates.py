"""Error rates from the doctor's results: detection, root cause first, false alarms; tables for the docs.

    python -m studies.clinic.rates results.jsonl [--out rates.md]

Detected: an accepted code stands among the findings at warning level or above. First: it is the first of
them. A false alarm: any finding at warning level or above on a healthy patient. Intervals are Clopper and
Pearson's at 95 %. A crash of the doctor counts as a miss on the sick and as an alarm on the healthy.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from studies.clinic.pool import Record, read

QUIET = {"info", "note", "hint"}
CRASH = "crash"


@dataclass(frozen=True)
class Share:
    """So many of so many, with a 95 % interval."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        """The share itself; 0 of 0 is 0."""
        return self.hits / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact interval."""
        if not self.total:
            return 0.0, 1.0
        low, high = stats.binomtest(self.hits, self.total).proportion_ci(0.95, method="exact")
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({self.hits}/{self.total}; {100 * low:.1f} to {100 * high:.1f})"


def alarms(record: Record) -> list[str]:
    """The codes at warning level or above, most probable cause first."""
    if CRASH in record:
        return [CRASH]
    levels = ((finding["code"], str(finding.get("level", "warning"))) for finding in record["findings"])
    return [code for code, level in levels if level.lower().rpartition(".")[2] not in QUIET]


def detected(record: Record) -> bool:
    """Whether an accepted code is among the alarms."""
    return bool(set(record["accepted"]) & set(alarms(record)))


def first_is_right(record: Record) -> bool:
    """Whether the first alarm is an accepted code."""
    return alarms(record)[:1] != [] and alarms(record)[0] in record["accepted"]


def healthy_of(records: Iterable[Record]) -> list[Record]:
    """The healthy patients."""
    return [record for record in records if record["fault"] is None]


def by_kind(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Sick records by their kind of fault."""
    grouped: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["fault"] is not None:
            grouped[record["fault"]].append(record)
    return dict(grouped)


def overall(records: Sequence[Record]) -> dict[str, Share]:
    """The three figures that the doctor is judged by."""
    sick = [record for group in by_kind(records).values() for record in group]
    healthy = healthy_of(records)
    return {
        "detected": Share(sum(map(detected, sick)), len(sick)),
        "right root cause first": Share(sum(map(first_is_right, sick)), len(sick)),
        "healthy with a false alarm": Share(sum(bool(alarms(record)) for record in healthy), len(healthy)),
    }


def kind_table(records: Sequence[Record]) -> list[str]:
    """One line for each kind: how often detected, how often first, and what stood first instead."""
    lines = ["| fault | patients | detected | cause first | first instead |", "|---|---|---|---|---|"]
    for kind, group in sorted(by_kind(records).items()):
        found, first = Share(sum(map(detected, group)), len(group)), sum(map(first_is_right, group))
        instead = Counter(
            (alarms(record) or ["nothing"])[0] for record in group if not first_is_right(record)
        )
        words = ", ".join(f"{code} {count}" for code, count in instead.most_common())
        low, high = found.interval
        share = f"{found.hits} ({100 * low:.0f} to {100 * high:.0f} %)"
        lines.append(f"| {kind} | {len(group)} | {share} | {first} | {words} |")
    return lines


def false_alarm_table(records: Sequence[Record], of: str) -> list[str]:
    """False alarms by `code`, or by `architecture`."""
    healthy = healthy_of(records)
    lines = [f"| {of} | healthy with a false alarm |", "|---|---|"]
    if of == "code":
        counts = Counter(code for record in healthy for code in set(alarms(record)))
        return lines + [f"| {code} | {Share(count, len(healthy))} |" for code, count in counts.most_common()]
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in healthy:
        groups[record["name"].rsplit("/", 1)[0]].append(record)
    for name, group in sorted(groups.items()):
        lines.append(f"| {name} | {Share(sum(bool(alarms(record)) for record in group), len(group))} |")
    return lines


def failures(records: Sequence[Record]) -> list[str]:
    """Every failure by name: what was missed, named second, or raised on the healthy."""
    lines = []
    for record in (record for group in by_kind(records).values() for record in group):
        if not first_is_right(record):
            verdict = "named later" if detected(record) else "missed"
            lines.append(f"- {record['name']}: {verdict}; found {', '.join(alarms(record)) or 'nothing'}")
    false = [record for record in healthy_of(records) if alarms(record)]
    lines += [f"- {record['name']}: healthy; found {', '.join(alarms(record))}" for record in false]
    return lines


def document(records: Sequence[Record]) -> str:
    """The tables in Markdown."""
    summary = [f"- {name}: {share}" for name, share in overall(records).items()]
    parts = [
        "## Error rates", "", *summary, "",
        "### By kind of fault", "", *kind_table(records), "",
        "### False alarms by code", "", *false_alarm_table(records, "code"), "",
        "### False alarms by architecture", "", *false_alarm_table(records, "architecture"), "",
        "### Every failure", "", *failures(records),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def main() -> None:
    """Read results, print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="files that `studies.clinic.run` wrote")
    parser.add_argument("--out", type=Path, help="where to write; printed if not given")
    options = parser.parse_args()
    text = document([record for path in options.results for record in read(path)])
    if options.out:
        options.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
