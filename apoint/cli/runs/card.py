"""How one run is shown: what it is, its state, its last metrics, its curves."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apoint.cli.runs.plot import plot_one
from apoint.cli.runs.text import STATE_COLOURS, ago, columns, draws_unicode, number, span
from apoint.cli.terminal import paint, say
from apoint.errors import ApointError, one_line
from apoint.store.run import Run

MOST_CURVES = 6
_HEIGHT = 8
_SAID_ELSEWHERE = ("name", "description")


def print_run(run: Run, metrics: Sequence[str], log: bool) -> None:
    """Write a run to the terminal.

    Args:
        run: The run.
        metrics: The curves to draw by surface name; the first few if empty.
        log: Whether the curves are drawn on a logarithmic axis.
    """
    run.check()
    logged = run.metrics
    curves = {name: logged.series(name) for name in metrics or logged.names[:MOST_CURVES]}
    say(one_line(run.folder.name))
    for label, text in _facts(run):
        say(f"  {label:<9} {text}")
    for name, curve in curves.items():
        say(f"\n{one_line(name)}   last {number(curve[1][-1])}")
        for line in plot_one(curve, columns(), _HEIGHT, draws_unicode(), log):
            say(line)
    hidden = [] if metrics else logged.names[MOST_CURVES:]
    if hidden:
        say(f"\n{len(hidden)} more curves: --metric " + one_line(", ".join(hidden)))


def _facts(run: Run) -> list[tuple[str, str]]:
    known, metrics = run.known(), run.metrics
    facts = [("state", _state(run)), ("folder", one_line(run.folder))]
    if not run.sealed:
        facts.append(("seal", "none: nothing of this has been verified, and it is no evidence"))
    if known["reason"]:
        facts.append(("reason", one_line(known["reason"])))
    if run.changes:
        facts.append(("changed", one_line(run.changes)))
    if known["started"] is not None:
        facts.append(("started", _began(known["started"])))
    facts += [("recipe" if not place else "", line) for place, line in enumerate(recipe_lines(run))]
    for place, name in enumerate(metrics.names):
        facts.append(("metrics" if not place else "", f"{one_line(name):<24} {number(metrics.last(name))}"))
    if metrics.torn:
        facts.append(("note", f"{metrics.torn} torn lines in the metrics were passed over"))
    return facts


def _state(run: Run) -> str:
    known, state = run.known(), run.state
    text = paint(one_line(state), STATE_COLOURS.get(state))
    if known["step"] is not None:
        text += f", step {known['step']}"
        text += f" of {known['total_steps']}" if known["total_steps"] is not None else ""
    trained = run.metrics.seconds
    if trained is not None:
        text += f", {span(trained)} of training"
    return text


def _began(moment: float) -> str:
    """The start time of a run; a number that is not a valid time is shown unchanged."""
    try:
        began = datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"
    return f"{began} ({ago(moment)})"


def recipe_lines(run: Run) -> list[str]:
    """The recipe in a few lines: plain settings, and the name of each ingredient."""
    try:
        settings = {name: value for name, value in run.resolved.items() if name not in _SAID_ELSEWHERE}
    except ApointError as error:
        return [one_line(error)]
    parts = [f"{name}={_brief(value)}" for name, value in settings.items() if _is_brief(value)]
    return textwrap.wrap(one_line("  ".join(parts)), columns() - 12)[:4]


def _is_brief(value: Any) -> bool:
    if isinstance(value, dict):
        return "name" in value
    return isinstance(value, str | int | float) and value != ""


def _brief(value: Any) -> str:
    return str(value["name"]) if isinstance(value, dict) else str(value)


def as_dictionary(run: Run, metrics: Sequence[str]) -> dict[str, Any]:
    """A run as `--json` prints it, with the curves in `metrics`, or all if empty."""
    run.check()
    logged = run.metrics
    curves = {name: logged.series(name) for name in metrics or logged.names}
    return {
        "folder": str(run.folder),
        "name": run.name,
        "fingerprint": run.fingerprint,
        "seed": run.seed,
        "state": run.state,
        "sealed": run.sealed,
        **run.known(),
        "recipe": run.resolved,
        "metrics": logged.final(),
        "torn_lines": logged.torn,
        "series": {name: {"steps": steps, "values": values} for name, (steps, values) in curves.items()},
    }
