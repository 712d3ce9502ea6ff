"""The foot of the page: what it cost, how to do it again, and what it was computed with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import apoint
from apoint.report import fields
from apoint.report.curves import ComparisonRuns
from apoint.report.markup import Markup, element, table
from apoint.report.record import ComparisonRecord
from apoint.report.words import core_time, count, duration

_VERSIONS = (
    ("apoint", "apoint"), ("torch", "PyTorch"), ("numpy", "NumPy"), ("python", "Python"),
    ("system", "System"), ("processor", "Processor"), ("device", "Device"), ("threads", "Threads a replica"),
)  # fmt: skip


def cost_section(record: ComparisonRecord) -> Markup:
    """Time of the processors and of the clock, by arm, and the fleet."""
    cost = record.cost
    rows = [("Together", core_time(fields.number(cost.get("core_seconds"))), _replicas(cost))]
    arms = (record.baseline, record.candidate)
    rows += [
        (arm.name.capitalize(), core_time(arm.core_seconds), count(len(arm.runs), "replica")) for arm in arms
    ]
    wall = duration(fields.number(cost.get("wall_seconds")))
    rows.append(("By the clock", wall, "from the first replica to the last"))
    fleet = element("p", f"Fleet: {record.fleet}.", class_="soft") if record.fleet else None
    return element(
        "section", element("h2", "Cost"), table("Cost", ("What", "Time", "Remark"), rows, "wide words"), fleet
    )


def _replicas(cost: fields.Json) -> str:
    replicas, cached = fields.maybe_whole(cost.get("replicas")), fields.whole(cost.get("from_cache"))
    if replicas is None:
        return ""
    return count(replicas, "replica") + (f", {cached} of them taken from the cache" if cached else "")


def reproduce_section(record: ComparisonRecord) -> Markup:
    """The command that does it again, with a button that copies it."""
    if not record.reproduce:
        body = element("p", "The record holds no command.", class_="soft")
    else:
        command = element("pre", element("code", record.reproduce, id="command"))
        button = element("button", "Copy", type="button", data_copy="command", hidden=True)
        body = element("div", command, button, class_="command")
    return element("section", element("h2", "Reproduce it"), body)


def versions_section(runs: ComparisonRuns) -> Markup:
    """What the replicas were computed with; where they differ, how many had which."""
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


def foot() -> Markup:
    """Who drew the page, and from what."""
    words = (
        f"Drawn by apoint {apoint.__version__} from the comparison folder and its run folders alone. "
        "This file loads nothing; deleting it loses nothing."
    )
    return element("footer", element("p", words))
