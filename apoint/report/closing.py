"""The foot of the page: what it cost, how to reproduce it, and what it was computed with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apoint
from apoint.report import fields
from apoint.report.curves import ComparisonRuns
from apoint.report.markup import Markup, element, table
from apoint.report.record import ComparisonRecord
from apoint.report.words import capital, core_time, count, duration

_VERSIONS = (
    ("apoint", "apoint"), ("torch", "PyTorch"), ("numpy", "NumPy"), ("python", "Python"),
    ("system", "System"), ("processor", "Processor"), ("device", "Device"), ("threads", "Threads a replica"),
)  # fmt: skip


def cost_section(record: ComparisonRecord) -> Markup:
    """Core time by arm, wall-clock time, and the fleet."""
    cost = record.cost
    rows = [("Together", core_time(fields.number(cost.get("core_seconds"))), replicas_words(cost))]
    arms = (record.baseline, record.candidate)
    rows += [
        (capital(title), core_time(arm.core_seconds), count(len(arm.runs), "replica"))
        for arm, title in zip(arms, record.verdict.arm_titles.values(), strict=True)
    ]
    wall = duration(fields.number(cost.get("wall_seconds")))
    rows.append(("By the clock", wall, "from the first replica to the last"))
    fleet = element("p", f"Fleet: {record.fleet}.", class_="soft") if record.fleet else None
    return element(
        "section", element("h2", "Cost"), table("Cost", ("What", "Time", "Remark"), rows, "wide words"), fleet
    )


def replicas_words(cost: fields.Json) -> str:
    """How many replicas there were, and how many came from the cache."""
    replicas, cached = fields.maybe_whole(cost.get("replicas")), fields.whole(cost.get("from_cache"))
    if replicas is None:
        return ""
    return count(replicas, "replica") + (f", {cached} of them taken from the cache" if cached else "")


def reproduce_section(command: str) -> Markup:
    """The command that reproduces it, with a button that copies it."""
    if not command:
        body = element("p", "The record holds no command.", class_="soft")
    else:
        body = to_copy(command, "command")
    return element("section", element("h2", "Reproduce it"), body)


def to_copy(text: str, name: str) -> Markup:
    """Text as typed, with a button that copies it; `name` is unique on the page."""
    button = element("button", "Copy", type="button", data_copy=name, hidden=True)
    return element("div", element("pre", element("code", text, id=name)), button, class_="command")


def versions_section(runs: ComparisonRuns) -> Markup:
    """The versions that the replicas were computed with; where they differ, with counts."""
    found = [flat for arm in runs.arms for environment in arm.environments if (flat := _flat(environment))]
    rows = []
    for key, name in _VERSIONS:
        values = Counter(str(each[key]) for each in found if key in each)
        if values:
            rows.append((name, "; ".join(_counted(values))))
    if not rows:
        body = element("p", "No run folder that tells versions could be read.", class_="soft")
    else:
        facts = [element("div", element("dt", name), element("dd", value)) for name, value in rows]
        body = element("dl", facts, class_="facts")
    return element("section", element("h2", "Computed with"), body)


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    key = fields.mapping(environment.get("key"))
    return {**key, **{name: value for name, value in environment.items() if name != "key"}}


def _counted(values: Counter[str]) -> list[str]:
    if len(values) == 1:
        return list(values)
    return [f"{value} ({count(times, 'run')})" for value, times in sorted(values.items())]


def foot(what: str = "comparison folder and its run folders") -> Markup:
    """What drew the page, and from what."""
    words = (
        f"Drawn by apoint {apoint.__version__} from the {what} alone. "
        "This file loads nothing; deleting it loses nothing."
    )
    return element("footer", element("p", words))
