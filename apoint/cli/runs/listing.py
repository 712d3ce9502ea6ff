"""How a list of runs is shown: one line per run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from apoint.cli.runs.text import (
    STATE_COLOURS,
    ago,
    columns,
    display_width,
    number,
    shorten,
    table,
)
from apoint.cli.terminal import say
from apoint.errors import one_line
from apoint.store.catalogue import Summary
from apoint.store.metrics import SPLITS

_MOST_METRICS = 3


def print_list(shown: Sequence[Summary], total: int, root: str) -> None:
    """Write a table of runs.

    Args:
        shown: The runs to write.
        total: The total number of runs.
        root: The folder of the runs.
    """
    if not shown:
        say(f"no runs in {one_line(root)}; make one with `apoint train`, or name another --runs-root")
        return
    metrics = _metrics_worth_a_column(shown)
    header = ["run", "state", "step", *map(one_line, metrics), "started"]
    rows = [header, *[_row(each, metrics) for each in shown]]
    if any(each.changes for each in shown):  # last, since it may be long
        changes = ["changed", *[one_line(each.changes) for each in shown]]
        rows = [[*row, text] for row, text in zip(rows, changes, strict=True)]
    rows = _fitted(rows)
    lines = table(rows, right=range(2, 3 + len(metrics)), colours=STATE_COLOURS)
    say(lines[0])
    for each, line in zip(shown, lines[1:], strict=True):
        say(line)
        if each.problem:
            say(f"  {one_line(each.problem)}")
    if not all(each.sealed for each in shown):
        say("~ not sealed: what such a run said last, unverified")
    if total > len(shown):
        say(f"{len(shown)} of {total} runs; --limit 0 shows all")


def _row(summary: Summary, metrics: Sequence[str]) -> list[str]:
    steps = "-" if summary.step is None else f"{summary.step}/{summary.total_steps or '?'}"
    values = [number(summary.last.get(name)) for name in metrics]
    state = summary.state if summary.sealed else f"~{summary.state}"
    return [one_line(summary.folder.name), one_line(state), steps, *values, ago(summary.started)]


def _fitted(rows: list[list[str]]) -> list[list[str]]:
    """The rows cut to the terminal's width: changes first, then names; a pipe gets them in full."""
    if not sys.stdout.isatty():
        return rows
    for place in (len(rows[0]) - 1, 0):
        excess = max(map(display_width, table(rows))) - columns()
        longest = max(display_width(row[place]) for row in rows)
        width = max(20, longest - max(0, excess))
        rows = [[*row[:place], shorten(row[place], width), *row[place + 1 :]] for row in rows]
    return rows


def _metrics_worth_a_column(shown: Sequence[Summary]) -> list[str]:
    """The metrics of the test split, or of the next one if nothing was tested; the most common first."""
    counts: dict[str, int] = {}
    for each in shown:
        for name in each.last:
            counts[name] = counts.get(name, 0) + 1
    order = {split: rank for rank, split in enumerate(reversed(SPLITS))}
    ranks = {name: order.get(name.partition("_")[0], len(order)) for name in counts}
    chosen = [name for name in counts if ranks[name] == min(ranks.values())]
    return sorted(chosen, key=lambda name: (-counts[name], name))[:_MOST_METRICS]


def as_dictionary(summary: Summary) -> dict[str, Any]:
    """A run of the list as `--json` prints it."""
    return {
        "folder": str(summary.folder),
        "name": summary.name,
        "fingerprint": summary.fingerprint,
        "changes": summary.changes,
        "seed": summary.seed,
        "state": summary.state,
        "started": summary.started,
        "step": summary.step,
        "total_steps": summary.total_steps,
        "sealed": summary.sealed,
        "metrics": summary.last,
        "problem": summary.problem,
    }
