"""The tables: every operation, every reading, every sign with its healthy range, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apoint.inspection.values import (
    Ends,
    Operation,
    healthy_of,
    maybe_number,
    number,
    operations,
    range_words,
)
from apoint.report import fields
from apoint.report.markup import Markup, element, table
from apoint.report.words import count, duration, percent, short

MOST_OPEN_ROWS = 16
_COLUMNS = ("Operation", "Kind", "Depth", "Mean", "Deviation", "Zeros", "Flat", "Gradient norm")


def operations_section(report: Mapping[str, Any]) -> Markup | None:
    """One row for each operation, folded if there are many."""
    rows = operations(report)
    if not rows:
        return None
    lead = (
        "Each operation in the order of execution, before training: mean and standard deviation of its "
        "output, share of zeros, share of inputs where it is all but flat, norm of the gradient that comes "
        "back."
    )
    body = table("Operations", _COLUMNS, [_operation(row) for row in rows], "wide figures")
    return element(
        "section", element("h2", "Layers and operations"), element("p", lead, class_="soft"),
        _folded(f"All {count(len(rows), 'operation')} as a table", body, len(rows) > MOST_OPEN_ROWS),
    )  # fmt: skip


def _operation(row: Operation) -> list[str]:
    return [
        row.name, row.kind, str(row.depth), short(row.mean), short(row.deviation), percent(row.zeros),
        "" if row.saturation is None else percent(row.saturation),
        "none" if row.gradient_norm is None else short(row.gradient_norm),
    ]  # fmt: skip


def _folded(summary: str, body: Markup, fold: bool) -> Markup:
    return element("details", element("summary", summary), body) if fold else body


def readings_section(report: Mapping[str, Any]) -> Markup | None:
    """What each probe measured, how sure it is and how it was obtained."""
    readings = {name: fields.mapping(each) for name, each in fields.mapping(report.get("readings")).items()}
    if not readings:
        return None
    rows = [[name, _value(reading), _how(reading)] for name, reading in readings.items()]
    body = table("Readings", ("Probe", "Value", "How it was obtained"), rows, "wide words")
    lead = "A value with its standard error where it is an estimate, and how much of the model it speaks for."
    return element("section", element("h2", "Readings"), element("p", lead, class_="soft"), body)


def _value(reading: fields.Json) -> str:
    if reading.get("value") is None:
        return "undefined"
    spread = maybe_number(reading.get("uncertainty"))
    error = "" if spread is None else f" ± {short(spread, 2)}"
    return f"{short(number(reading.get('value')), 4)}{error} {fields.text(reading.get('unit'))}".strip()


def _how(reading: fields.Json) -> list[Markup | str]:
    parameters = percent(number(reading.get("coverage")))
    covered = "" if reading.get("value") is None else f"; covers {parameters} of the parameters"
    notes = [element("small", note) for note in fields.texts(reading.get("notes"))]
    return [f"{fields.text(reading.get('how'))}{covered}", *notes]


def signs_section(report: Mapping[str, Any]) -> Markup:
    """Every number that was checked, against its healthy range."""
    signs = {name: number(value) for name, value in fields.mapping(report.get("signs")).items()}
    places = fields.mapping(report.get("places"))
    outside = [name for name, value in signs.items() if side(value, healthy_of(name))]
    words = f"All {count(len(signs), 'sign')} with their healthy ranges, {len(outside)} outside"
    rows = [_sign(name, value, fields.text(places.get(name))) for name, value in signs.items()]
    body = table("Signs", ("Sign", "Value", "Healthy", "Lies", "Where"), rows, "wide signs")
    lead = "Every number that was looked at. Healthy ranges come from trainings that went well."
    inner = _folded(words, body, True) if signs else element("p", "No sign could be read.")
    return element("section", element("h2", "Signs"), element("p", lead, class_="soft"), inner)


def side(value: float, healthy: Ends) -> str:
    """On which side of its healthy range a value is; empty if inside."""
    low, high = healthy
    if low is not None and value < low:
        return "▼ below"
    return "▲ above" if high is not None and value > high else ""


def _sign(name: str, value: float, place: str) -> list[Markup | str]:
    healthy = healthy_of(name)
    found = side(value, healthy)
    verdict = element("strong", found) if found else "inside" if range_words(healthy) else ""
    return [name, short(value, 4), range_words(healthy) or "no range", verdict, place]


def unchecked_section(report: Mapping[str, Any]) -> Markup | None:
    """What was not checked, and why."""
    left_out = fields.mapping(report.get("unchecked"))
    if not left_out:
        return None
    items = [element("div", element("dt", what), element("dd", str(why))) for what, why in left_out.items()]
    return element("section", element("h2", "Not checked"), element("dl", items, class_="unchecked"))


def stages_section(report: Mapping[str, Any]) -> Markup | None:
    """Which stages ran, which were skipped and which failed, and how long each took."""
    seconds = {name: number(value) for name, value in fields.mapping(report.get("seconds")).items()}
    stages = {name: fields.mapping(each) for name, each in fields.mapping(report.get("stages")).items()}
    if not seconds and not stages:
        return None
    names = list(dict.fromkeys([*stages, *seconds]))
    facts = [
        element("div", element("dt", name), element("dd", _stage(stages.get(name, {}), seconds.get(name))))
        for name in names
    ]
    return element("section", element("h2", "Stages"), element("dl", facts, class_="facts times"))


def _stage(stage: fields.Json, seconds: float | None) -> list[Markup | str]:
    """Its time, and its state if it did not run; the reason is under Not checked."""
    time = [] if seconds is None else [_time(seconds)]
    state = fields.text(stage.get("state"))
    return [*time, *([element("small", f" {state}")] if state not in ("", "ran") else [])]


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if 0 <= seconds < 1 else duration(seconds)


def total_seconds(report: Mapping[str, Any]) -> float:
    """How long all stages took together; NaN if not known."""
    values = [number(value) for value in fields.mapping(report.get("seconds")).values()]
    return math.fsum(values) if values else math.nan
