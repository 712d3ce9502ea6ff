"""What a comparison changes, in words."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.plain_yaml import parse_yaml
from apoint.recipe import format_value
from apoint.trials.arms import Arm, make_arm
from apoint.trials.candidates import own_candidate
from apoint.trials.improve import _declared_entries
from apoint.trials.naming import Names, _changes, name_arms, name_values
from apoint.verdict.record import LONGEST_CHANGE, LONGEST_NAME

RECIPES = Path(__file__).parents[2] / "recipes"
BASE = RECIPES / "digits-mlp.yaml"


def base() -> Arm:
    return make_arm("baseline", BASE)


def named(**changes: Any) -> Names:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return name_arms(base(), make_arm("candidate", BASE, dotted))


@pytest.mark.parametrize(
    ("changes", "phrase", "candidate", "baseline"),
    [
        ({"optimizer.name": "lion", "optimizer.lr": 1e-4},
         "lion at lr 1e-4 instead of adamw at lr 2e-3", "lion at lr 1e-4", "adamw at lr 2e-3"),
        ({"init": "glorot"}, "init glorot instead of he", "init glorot", "init he"),
        ({"model.width": 2048}, "model.width 2048 instead of 128", "width 2048", "width 128"),
        ({"optimizer.lr": 3e-4, "batch_size": 64},
         "optimizer.lr 3e-4 instead of 2e-3 and batch_size 64 instead of 32", "lr 3e-4, batch_size 64",
         "lr 2e-3, batch_size 32"),
        ({"model.norm": "batch"}, "model.norm batch instead of none", "norm batch", "no norm"),
        ({"schedule": "constant"}, "schedule constant instead of cosine at warmup 5%", "schedule constant",
         "schedule cosine at warmup 5%"),
        ({"augment": ["flip", {"name": "crop", "padding": 1}]}, "augment flip + crop instead of none",
         "augment flip + crop", "no augment"),
        ({"average": {"decay": 0.99}}, "average decay 0.99 instead of none", "average decay 0.99",
         "no average"),
        ({"model.dropout": {"name": "window", "value": 0.1, "begin": "0%", "end": "20%"}},
         "model.dropout window at value 0.1 and begin 0% instead of 0.2",
         "dropout window at value 0.1 and begin 0%",
         "dropout 0.2"),
        ({"loss.label_smoothing": 0.1}, "loss.label_smoothing 0.1 instead of 0", "label_smoothing 0.1",
         "label_smoothing 0"),
        ({"epochs": 5, "model.depth": 3, "model.width": 32, "batch_size": 64},
         "model.depth 3 instead of 2, model.width 32 instead of 128 and 2 further changes",
         "depth 3, width 32, …", "depth 2, width 128, …"),
    ],
)  # fmt: skip
def test_a_change_reads_as_one_would_say_it(
    changes: dict[str, Any], phrase: str, candidate: str, baseline: str
) -> None:
    found = name_arms(base(), make_arm("candidate", BASE, changes))
    assert found == Names(baseline, candidate, phrase)


def test_taking_something_away() -> None:
    with_norm = make_arm("baseline", BASE, {"model.norm": "batch"})
    assert name_arms(with_norm, base()).change == "no model.norm instead of batch"


def test_defaults_that_change_with_an_ingredient_are_left_out() -> None:
    """Lion has other betas than AdamW and no epsilon; nobody wrote that."""
    assert "beta" not in named(optimizer__name="lion").change
    assert "eps" not in named(optimizer__name="lion").change
    own = named(optimizer={"name": "lion", "lr": 1e-4, "weight_decay": 0.01, "beta2": 0.9})
    assert own.change == "lion at lr 1e-4 and beta2 0.9 instead of adamw at lr 2e-3 and beta2 0.999"


def test_what_follows_elsewhere_from_a_change_is_left_out() -> None:
    before, after = {"model": "a", "init": "x"}, {"model": "b", "init": "y"}
    found = _changes(before, after, {"model": "a"}, {"model": "b"})
    assert [each.phrase for each in found] == ["model b instead of a"]
    assert len(_changes(before, after, {}, {})) == 2, "if nobody wrote any, all are told"


def test_two_recipes_that_differ_in_much_go_by_their_names() -> None:
    found = name_arms(base(), make_arm("candidate", RECIPES / "digits-deep-relu.yaml"))
    assert found == Names("digits-mlp", "digits-deep-relu", "digits-deep-relu instead of digits-mlp")
    few = name_arms(base(), make_arm("candidate", RECIPES / "digits-lion.yaml"))
    assert few.change.startswith("lion at lr 2e-4"), "few changes say more than a name"


def test_plain_settings_of_a_script_or_a_function() -> None:
    assert name_values({"lr": 1e-3, "depth": 2}, {"lr": 3e-3, "depth": 2}) == Names(
        "lr 1e-3", "lr 3e-3", "lr 3e-3 instead of 1e-3"
    )
    assert name_values({}, {"flag": True}).change == "flag true instead of none"
    assert name_values({"a": 1}, {"a": 1}) == Names()


def test_settings_of_one_name_in_two_places_keep_their_paths() -> None:
    found = name_values({"a": {"eps": 1}, "b": {"eps": 1}}, {"a": {"eps": 2}, "b": {"eps": 2}})
    assert found.candidate_name == "a.eps 2, b.eps 2"


def test_long_values_are_cut_and_the_arms_still_have_two_names() -> None:
    found = name_values({"file": "x" * 80 + "a"}, {"file": "x" * 80 + "b"})
    assert found.baseline_name != found.candidate_name
    assert len(found.change) <= LONGEST_CHANGE


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "lr", "x"]), inner),
    max_leaves=8,
)
recipes = st.dictionaries(st.sampled_from(["optimizer", "init", "model", "batch_size", "augment"]), values)


@given(recipes, recipes)
@settings(deadline=None, max_examples=200)
def test_any_two_arms_get_short_printable_names_that_differ(before: dict, after: dict) -> None:
    found = name_values(before, after)
    assert (found == Names()) == (found.change == "")
    assert len(found.change) <= LONGEST_CHANGE
    for name in (found.baseline_name, found.candidate_name):
        assert len(name) <= LONGEST_NAME + len(" (candidate)")
        assert "\n" not in name
        assert "\x1b" not in name
    if found.change:
        assert found.baseline_name != found.candidate_name


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.002, "2e-3"), (1e-4, "1e-4"), (0.01, "0.01"), (0.05, "0.05"), (3.5e-4, "3.5e-4"), (30.0, "30"),
     (-0.0, "0"), (1e6, "1e6"), (123456.0, "123456"), (5, "5"), (True, "true"), (None, "null"),
     ({"name": "norm", "limit": 1.0}, "{name: norm, limit: 1}"), ([0.1, "a"], "[0.1, a]")],
)  # fmt: skip
def test_values_are_written_as_people_write_them(value: Any, text: str) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_it_is(value: float) -> None:
    assert float(format_value(value)) == value
    read = parse_yaml(format_value(value), "value").content
    assert isinstance(read, int | float)
    assert math.isclose(read, value, rel_tol=1e-15)


def test_a_search_goes_on_under_the_labels_it_was_declared_with() -> None:
    """Labels of one's own candidates were written with other digits before; the recipe is what counts."""
    candidate = own_candidate("optimizer.lr=0.003")
    assert candidate.label == "optimizer.lr=3e-3"
    arm = make_arm(candidate.label, BASE, candidate.changes)
    declared = [{"label": "optimizer.lr=0.003", "fingerprint": arm.recipe.fingerprint}]
    found = _declared_entries(SimpleNamespace(candidates=declared), {candidate.label: (candidate, arm)})
    assert list(found) == ["optimizer.lr=0.003"]
    assert found["optimizer.lr=0.003"] == (replace(candidate, label="optimizer.lr=0.003"), arm)
