"""Which recipes may be compared, and in what they differ."""

from typing import Any

import pytest

from apoint.errors import UsageError
from apoint.trials.arms import check_comparable, differences, flattened, make_arm
from apoint.trials.budget import looks_within, seconds_of
from apoint.trials.declaration import question
from apoint.verdict import DEFAULT_LOOKS
from tests.trials.conftest import SMALL


def arms(*changes: dict[str, Any]) -> tuple[Any, Any]:
    first, second = (*changes, {})[:2] if len(changes) == 1 else changes
    return make_arm("baseline", SMALL, second), make_arm("candidate", SMALL, first)


def test_differences_name_every_place_and_nothing_else() -> None:
    before = {"a": 1, "b": {"c": 2, "d": [1]}, "e": {}}
    after = {"a": 1, "b": {"c": 3, "d": [1], "f": None}, "e": {"g": 1}}
    found = {
        change["path"]: (change["baseline"], change["candidate"]) for change in differences(before, after)
    }
    assert found == {"b.c": (2, 3), "b.f": (None, None), "e": ({}, None), "e.g": (None, 1)}
    assert differences(before, before) == []
    assert flattened(before) == {"a": 1, "b.c": 2, "b.d": [1], "e": {}}


def test_the_same_recipe_is_refused_however_it_is_written() -> None:
    for change in ({"model.dropout": 0.0}, {"optimizer.name": "adamw"}, {"name": "another-name"}):
        with pytest.raises(UsageError, match="these recipes are the same"):
            check_comparable(*arms(change), metric="test_accuracy")


def test_other_data_is_refused_and_less_of_the_same_is_not() -> None:
    with pytest.raises(UsageError, match=r"different data: data\.test_share is 0\.2 and 0\.3"):
        check_comparable(*arms({"data.test_share": 0.3}), metric="test_accuracy")
    check_comparable(*arms({"data.limit": 120}), metric="test_accuracy")
    check_comparable(*arms({"data.normalise": False}), metric="test_accuracy")


def test_a_loss_is_no_common_metric_of_two_losses() -> None:
    smoothed = arms({"loss": {"name": "cross-entropy", "label_smoothing": 0.1}})
    check_comparable(*smoothed, metric="test_accuracy")
    with pytest.raises(UsageError, match="each recipe's own loss"):
        check_comparable(*smoothed, metric="test_loss")


def test_seeds_vary_everything_unless_somebody_says_otherwise() -> None:
    assert set(make_arm("a", SMALL).recipe.vary) == {"init", "order", "augmentation", "dropout", "split"}
    assert make_arm("a", {**SMALL, "vary": ["init"]}).recipe.vary == ["init"]
    assert make_arm("a", SMALL, vary=["order", "init"]).recipe.vary == ["init", "order"]
    with pytest.raises(UsageError, match="cannot be paired"):
        check_comparable(*arms({"vary": ["init"], "epochs": 2}), metric="test_accuracy")


def test_a_question_is_the_recipes_without_the_length_of_training() -> None:
    asked = question(arms({"optimizer.lr": 1e-3}))
    longer = question(arms({"optimizer.lr": 1e-3, "epochs": 9}, {"epochs": 9}))
    assert asked == longer
    assert asked != question(arms({"optimizer.lr": 1e-2}))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("2 min", 120), (7, 7)]
)
def test_times(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["20", "soon", "-3m", 0, "0s", True])
def test_times_that_are_none(text: Any) -> None:
    with pytest.raises(UsageError, match="time"):
        seconds_of(text)


def test_looks_that_fit() -> None:
    assert looks_within(100) == looks_within(32) == DEFAULT_LOOKS
    assert looks_within(9) == (6, 7, 8, 9)
    assert looks_within(64, 64)[-5:] == (32, 40, 48, 56, 64)
    assert looks_within(6) == (6,)
    for affordable in range(6, 40):
        looks = looks_within(affordable)
        assert looks[0] >= 6
        assert looks[-1] == min(affordable, 32)
        assert list(looks) == sorted(set(looks))
    with pytest.raises(UsageError, match="at least 6"):
        looks_within(5)
