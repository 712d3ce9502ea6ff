"""`docs/faults.md`: a row for each group, and every failure with its reason."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from faults.group import SEED, Group
from faults.ledger import Ledger, Result

NOT_YET = {
    "S6": "a run store on PostgreSQL: the store is a folder and an SQLite catalogue",
    "W6": "Ray: needs a cluster; `tests/engine/fleet/test_ray.py` kills its workers",
    "D1-D5": "training distributed over processes (torchrun): there is none",
    "X3, X4, X6, X7, X9": "a web server: there is none; pages are files",
}
_SHOWN = 12  # failures of one group that are named one by one, before those alike are counted


def render(groups: Iterable[Group], ledger: Ledger, workers: int) -> str:
    """The document."""
    rows = [(group, ledger.of(group)) for group in groups]
    results = [result for _, found in rows for result in found]
    failures = [result for result in results if result.reason]
    lines = [
        "# Faults",
        "",
        "What happens when something breaks. `make faults` does everything below to the product on purpose "
        "and writes this page; how a group is added is in [contributing](contributing.md#the-fault-suite).",
        "",
        f"{len(results):,} cases, **{_count(failures)}**. {datetime.now(UTC):%Y-%m-%d}, "
        f"{os.cpu_count()} cores ({workers} cases at a time), Python {platform.python_version()}, "
        f"PyTorch {version('torch')}; {ledger.session_seconds / 60:.0f} minutes. "
        f"Seed {SEED}. Each case has a deadline, a hang is a failure, and nothing is tried twice.",
        "",
        "| group | what is done | a case passes if | cases | failures | seconds |",
        "|---|---|---|---:|---:|---:|",
        *(_row(group, found) for group, found in rows),
        "",
        "## Failures",
        *(_failures([result for result in found if result.reason]) for _, found in rows),
        *([] if failures else ["None."]),
        "",
        "## What does not apply yet",
        *(f"- {name}: {why}." for name, why in NOT_YET.items()),
    ]
    return "\n".join(line for line in lines if line is not None) + "\n"


def _count(failures: list[Result]) -> str:
    return f"{len(failures)} failure{'s' * (len(failures) != 1)}"


def _row(group: Group, found: list[Result]) -> str:
    failed = sum(bool(result.reason) for result in found)
    seconds = sum(result.seconds for result in found)
    count = f"{len(found)}" if len(found) == len(group.cases) else f"{len(found)} of {len(group.cases)}"
    return f"| {group.id} | {group.fault} | {group.passing} | {count} | {failed} | {seconds:.0f} |"


def _failures(failed: list[Result]) -> str | None:
    if not failed:
        return None
    lines = [f"- {_code(f'{each.group} {each.case}')}: {_plain(each.reason)}" for each in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        more = ", ".join(each.case for each in failed[_SHOWN:])
        lines.append(f"- and {len(failed) - _SHOWN} more of {failed[0].group}: {_code(_cut(more, 1500))}")
    return "\n".join(["", *lines])


def _code(text: str) -> str:
    return f"`{_plain(text).replace('`', '_')}`"


def _plain(text: str) -> str:
    """Text from anywhere as one harmless line."""
    shown = "".join(each if each.isprintable() else "·" for each in text.replace("\n", " "))
    return _cut(shown.replace("<", "&lt;").replace("|", "¦").replace("](", "] ("), 500)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " …"


def write(path: Path, text: str) -> None:
    """Keep the document."""
    path.write_text(text)
