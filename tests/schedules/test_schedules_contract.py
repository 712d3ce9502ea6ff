"""Laws that hold for every registered schedule, found by the registry."""

from __future__ import annotations

import doctest
import inspect
import math
import random
import re

import pytest

import apoint.schedules
from apoint.checking import settings_model
from apoint.registry import registry
from apoint.schedules import Schedule
from tests.schedules.schedule_cases import CASES, HORIZON, TOTAL, as_share, every_variant, with_lengths

SCHEDULES = registry("schedule")
VARIANTS = every_variant()
IDS = [f"{name}, {change}" for name, change, _ in VARIANTS]
# PyTorch steps by recursion: about TOTAL roundings of relative size 1e-16.
CLOSE = {"rel": 1e-12, "abs": 1e-12}


def build(name: str, settings: dict) -> Schedule:
    return SCHEDULES.build({"name": name, **settings}, HORIZON)


def test_every_schedule_has_a_reference() -> None:
    assert set(CASES) == set(SCHEDULES)


@pytest.mark.parametrize(("name", "change", "settings"), VARIANTS, ids=IDS)
def test_trajectory_equals_the_reference(name: str, change: str, settings: dict) -> None:
    assert build(name, settings).values(TOTAL) == pytest.approx(CASES[name].reference(**settings), **CLOSE)


@pytest.mark.parametrize("name", CASES)
def test_every_setting_has_a_case_and_changes_the_trajectory(name: str) -> None:
    case = CASES[name]
    assert set(case.changes) >= set(SCHEDULES[name].setting_parameters)
    trajectories = [build(name, settings).values(TOTAL) for _, settings in case.variants()]
    for i, one in enumerate(trajectories):
        for other in trajectories[:i]:
            assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 1e-3


@pytest.mark.parametrize(("name", "change", "settings"), VARIANTS, ids=IDS)
def test_lengths_in_steps_epochs_and_shares_agree(name: str, change: str, settings: dict) -> None:
    expected = build(name, settings).values(TOTAL)
    spellings = [
        (lambda length: f"{length / HORIZON.steps_per_epoch!r} epochs", 1e-12),
        (lambda length: length / TOTAL, 1e-12),
        (lambda length: str(as_share(length)), 1e-9),  # as a resolved recipe prints it, with twelve digits
    ]
    for write, tolerance in spellings:
        values = build(name, with_lengths(settings, write)).values(TOTAL)
        assert values == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(("name", "change", "settings"), VARIANTS, ids=IDS)
def test_pure_and_finite(name: str, change: str, settings: dict) -> None:
    places = [i / 997 for i in range(998)] + [i / TOTAL for i in range(TOTAL + 1)]
    schedule = build(name, settings)
    in_order = [schedule(place) for place in places]
    assert all(type(value) is float and math.isfinite(value) for value in in_order)
    shuffled = random.Random(0).sample(range(len(places)), len(places))
    assert {i: schedule(places[i]) for i in shuffled} == dict(enumerate(in_order))
    assert [build(name, settings)(place) for place in places] == in_order


@pytest.mark.parametrize(("name", "change", "settings"), VARIANTS, ids=IDS)
def test_a_direct_call_is_the_same_as_a_recipe(name: str, change: str, settings: dict) -> None:
    function = getattr(apoint.schedules, name.replace("-", "_"))
    direct, built = function(HORIZON, **settings), build(name, settings)
    assert direct.values(TOTAL) == built.values(TOTAL)
    assert repr(direct) == repr(built)
    assert repr(direct).startswith(f"{function.__name__}(")


@pytest.mark.parametrize("name", SCHEDULES)
def test_documented(name: str) -> None:
    entry = SCHEDULES[name]
    text = inspect.getdoc(entry.build) or ""
    assert re.fullmatch(r"[A-Z].{10,100}\.", entry.summary)
    assert "Reference:" in text
    assert entry.setting_parameters
    for setting, (annotation, _, note) in entry.setting_parameters.items():
        assert note.endswith("."), setting
        assert annotation not in (inspect.Parameter.empty, None), setting
    assert entry.supplied == ("horizon",)


@pytest.mark.parametrize("name", SCHEDULES)
def test_exported_and_described_by_a_schema(name: str) -> None:
    function = name.replace("-", "_")
    assert function in apoint.schedules.__all__
    assert getattr(apoint.schedules, function) is SCHEDULES[name].build
    properties = settings_model(SCHEDULES[name]).model_json_schema()["properties"]
    assert set(properties) == set(SCHEDULES[name].setting_parameters)
    # A default must be something that a recipe may write: a length is text, not our own class.
    assert not any(isinstance(prop.get("default"), dict) for prop in properties.values())


@pytest.mark.parametrize("name", sorted(set(CASES) - {"piecewise"}))
def test_defaults_make_a_schedule_for_any_training(name: str) -> None:
    for total in (1, 7, 1000):
        schedule = SCHEDULES.build(name, type(HORIZON)(total, 1))
        assert all(map(math.isfinite, schedule.values(total)))
        assert repr(schedule) == f"{name.replace('-', '_')}()"


def test_the_example_in_the_documentation_runs() -> None:
    results = doctest.testmod(apoint.schedules)
    assert results.attempted == 3
    assert results.failed == 0
