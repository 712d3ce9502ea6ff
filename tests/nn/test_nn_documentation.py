"""What every ingredient of these kinds must say of itself."""

from __future__ import annotations

import inspect

import pytest

from apoint.registry import Ingredient, registry

ENTRIES: list[Ingredient] = [
    entry
    for kind in ("activation", "feed-forward", "norm", "loss")
    for entry in registry(kind).values()
    if entry.build.__module__.startswith("apoint.")
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_the_docstring_has_all_its_parts(entry: Ingredient) -> None:
    text = inspect.getdoc(entry.build) or ""
    assert entry.summary.endswith(".")
    assert len(entry.summary) <= 120
    assert "\nReference: " in text
    for setting, (_, default, note) in entry.setting_parameters.items():
        assert note.endswith("."), f"{entry.name}: {setting} has no line in Args"
        assert default is not inspect.Parameter.empty, f"{entry.name}: {setting} has no default"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind}-{entry.name}")
def test_the_name_is_in_kebab_case_and_the_course_items_are_real(entry: Ingredient) -> None:
    assert entry.name == entry.name.lower().replace("_", "-").replace(" ", "-")
    assert all(item[0] in "ADGJ" and item[1:].isdigit() for item in entry.course)
    assert entry.course or entry.name in ("identity", "none")


def test_losses_say_which_tasks_they_serve() -> None:
    known = {"classification", "language", "regression"}
    for entry in registry("loss").values():
        assert entry.traits["tasks"]
        assert set(entry.traits["tasks"]) <= known
