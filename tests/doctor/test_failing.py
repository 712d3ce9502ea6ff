"""A model, loss, batch or step that raises is a severe finding with its place and what would fit."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from torch import nn

import apoint
from apoint.doctor import flow, start
from apoint.errors import UsageError
from apoint.inspection import Report
from tests.doctor.cases import inspected, perceptron
from tests.doctor.failures import CASES, HEALTHY, Net, data, given, mending_step
from tests.doctor.test_findings import good

FAILING = {"batch-fails", "forward-fails", "loss-fails", "backward-fails", "step-fails"}


def report_of(settings: dict[str, Any]) -> Report:
    settings = {"quick": True, **settings}
    return apoint.inspect(settings.pop("model"), settings.pop("data"), **settings)


@pytest.mark.parametrize("name", CASES)
def test_what_fails_is_named_first_with_its_place_and_what_would_fit(name: str) -> None:
    case = CASES[name]
    report = report_of(case.make())
    assert report.findings, str(report)
    first = report.findings[0]
    assert (first.code, first.level) == (case.code, "severe"), str(report)
    assert first.details["exception"].startswith(f"{case.error}: "), first.details
    said = f"{first.symptom} {first.place} {first.cause} {first.treatment.words} {first.treatment.code} {first.details}"
    for part in case.place:
        assert part in first.place, first.place
    if "failures.py" in case.place:
        assert re.search(r"failures\.py:\d+", first.place)
    for part in case.says:
        assert part in said, said
    assert "Nothing wrong" not in str(report)
    assert not report.healthy
    assert report.stages["run"].state == "failed"
