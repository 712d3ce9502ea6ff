"""Equal tuning: the same search for every arm, on seeds of its own, and what it says of both."""

import json
import math
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.data.loading import use_dataset_cache
from apoint.engine import Options
from apoint.errors import UsageError
from apoint.recipe import load_recipe
from apoint.store import find_runs
from apoint.trials import Rules, make_arm, prepare
from apoint.trials.tune import (
    TUNING_SEEDS,
    Search,
    TunedComparison,
    dial,
    settings_to_try,
    tune,
    tune_arms,
    tuned_comparison,
)
from tests.trials.conftest import SMALL
from tests.trials.test_improve import KEPT, MadeUpFleet

SEEDS = (1_000_000, 1_000_001)


def recipe(**changes: Any):
    return load_recipe({**SMALL, **changes})[0]


def search(**changes: Any) -> Search:
    values: dict[str, Any] = {
        "names": ("lr",), "num_tries": 12, "seeds": SEEDS, "metric": "test_accuracy",
        "higher_is_better": True,
    }  # fmt: skip
    return Search(**values | changes)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records of made-up training need not survive a power cut, and the data is read once for all tests."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with use_dataset_cache(KEPT):
        yield


# -- ranges ------------------------------------------------------------------------------------------------


def test_a_rate_is_searched_a_decade_and_a_half_each_way() -> None:
    found = dial(recipe(), "lr")
    assert (found.path, found.scale) == ("optimizer.lr", "log")
    assert found.low == pytest.approx(3e-3 / 10**1.5)
    assert found.high == pytest.approx(3e-3 * 10**1.5)
    assert found.at(0.5) == pytest.approx(3e-3, rel=1e-2), "the middle of the range is the default"


@pytest.mark.parametrize(
    ("name", "changes", "low", "high", "scale"),
    [
        ("weight_decay", {"optimizer": {"name": "adam", "lr": 1e-3}}, 1e-4, 1.0, "log"),
        ("l2", {}, 1e-6, 1e-2, "log"),
        ("model.dropout", {}, 0.0, 0.5, "linear"),
        ("model.dropout", {"model": {"name": "mlp", "dropout": 0.4}}, 0.0, 0.8, "linear"),
        ("loss.label_smoothing", {}, 0.0, 0.5, "linear"),
        ("clip.limit", {"clip": {"name": "norm", "limit": 1.0}}, 10**-1.5, 10**1.5, "log"),
        ("optimizer.beta1", {}, 0.1, 0.99, "complement"),
        ("optimizer.beta2", {}, 0.99, 0.9999, "complement"),
        ("model.activation.slope", {"model": {"name": "mlp", "activation": "leaky-relu"}}, None, None, None),
        ("batch_size", {}, 8, 127, "log"),
        ("model.width", {"model": {"name": "cnn", "width": 16}}, 4, 64, "log"),
        ("augment.0.std", {"augment": [{"name": "noise", "std": 0.1}]}, None, None, None),
        ("average.decay", {"average": {"decay": 0.99}}, 0.9, 0.999, "complement"),
    ],
)
def test_ranges_follow_from_the_type_and_the_default(name, changes, low, high, scale) -> None:
    found = dial(recipe(**changes), name)
    if low is None:
        assert found.low < found.default < found.high
    else:
        assert (found.low, found.high) == (pytest.approx(low, rel=0.02), pytest.approx(high, rel=0.02))
        assert found.scale == scale


NAMES = ["lr", "weight_decay", "l2", "beta1", "beta2", "eps", "model.dropout", "model.input_dropout",
         "loss.label_smoothing", "schedule.floor", "clip.limit", "batch_size"]  # fmt: skip
FULL = {"schedule": "cosine", "clip": "norm", "optimizer": "adamw"}


@given(st.sampled_from(NAMES), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_every_value_of_a_dial_is_allowed_and_within_its_ends(name: str, share: float) -> None:
    base = {**SMALL, **FULL}
    found = dial(load_recipe(base)[0], name)
    value = found.at(share)
    assert found.low <= value <= found.high
    changed, _ = load_recipe(base, {found.path: value})
    assert changed.fingerprint


@given(st.sampled_from(NAMES), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_dials_rise(name: str, first: float, second: float) -> None:
    found = dial(load_recipe({**SMALL, **FULL})[0], name)
    low, high = sorted((first, second))
    assert found.at(low) <= found.at(high)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("rate", {}, "has no setting 'rate'"),
        ("clip.limit", {}, "clip 'none' has no setting 'limit'"),
        (
            "model.dropout",
            {"model": {"name": "mlp", "dropout": {"name": "window", "value": 0.3}}},
            "schedule",
        ),
        ("model.norm", {}, "cannot be tuned"),
        ("model.bias", {}, "cannot be tuned"),
        ("schedule.warmup", {"schedule": "cosine"}, "cannot be tuned"),
        ("data.limit", {}, "cannot tune 'data.limit'"),
        ("augment.0.std", {}, "cannot tune 'augment.0.std'"),
        ("model", {}, "has no setting 'model'"),
        ("model.width.x", {}, "has no settings inside it"),
        ("average.decay", {}, "cannot tune"),
        ("model.width", {"model": {"name": "mlp", "width": [16, 8], "depth": 2}}, "cannot be tuned"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_sentence(name, changes, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        dial(recipe(**changes), name)


# -- the tries ---------------------------------------------------------------------------------------------


def test_tries_begin_with_the_recipe_itself_and_are_the_same_for_every_arm() -> None:
    first = settings_to_try(recipe(), ["lr", "model.dropout"], 12)
    assert first[0] == {}
    assert len(first) == 12
    assert first == settings_to_try(recipe(), ["lr", "model.dropout"], 12)
    lion = settings_to_try(recipe(optimizer={"name": "lion", "lr": 3e-4}), ["lr", "model.dropout"], 12)
    for mine, other in zip(first[1:], lion[1:], strict=True):
        assert other["optimizer.lr"] == pytest.approx(mine["optimizer.lr"] / 10, rel=0.01)
        assert other["model.dropout"] == mine["model.dropout"]


@pytest.mark.parametrize("num_tries", [12, 33])
def test_tries_fill_the_range_evenly(num_tries: int) -> None:
    tries = settings_to_try(recipe(), ["lr", "weight_decay"], num_tries)[1:]
    for path, center in (("optimizer.lr", 3e-3), ("optimizer.weight_decay", 0.01)):
        places = sorted((math.log10(each[path] / center) + 1.5) / 3 for each in tries)
        assert len(set(places)) == num_tries - 1
        gaps = [b - a for a, b in zip([0.0, *places], [*places, 1.0], strict=True)]
        assert max(gaps) < 4 / num_tries, "no part of the range is left out"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"names": ()}, "at least one setting"),
        ({"names": ("lr", "lr")}, "named twice"),
        ({"num_tries": 1}, "at least 2"),
    ],
)
def test_a_search_for_nothing_is_refused(changes, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        search(**changes)


# -- the choice --------------------------------------------------------------------------------------------


def peaked(best: float, height: float = 0.9, noise: float = 0.01) -> Any:
    """Accuracies that fall off with the distance of the rate from the best, in decades."""

    def metrics(task: Any) -> dict[str, float]:
        away = math.log10(task.recipe.optimizer["lr"] / best)
        luck = noise * (1 if task.seed % 2 else -1)
        value = height - 0.2 * away**2 + luck
        return {"accuracy": value, "loss": 1 - value}

    return metrics


def test_the_best_setting_is_found_and_both_are_reported(root: Path) -> None:
    fleet = MadeUpFleet(root, peaked(0.02))
    found = tune(make_arm("baseline", SMALL), search(), fleet)
    assert {task.seed for task in fleet.asked} == set(SEEDS)
    assert len(fleet.asked) == 24
    rates = [3e-3, *(each["optimizer.lr"] for each in settings_to_try(recipe(), ["lr"], 12)[1:])]
    nearest = min(rates, key=lambda rate: abs(math.log10(rate / 0.02)))
    assert found.best.changes == {"optimizer.lr": nearest}
    assert found.default.mean == pytest.approx(0.9 - 0.2 * math.log10(3e-3 / 0.02) ** 2)
    assert found.gain == pytest.approx(found.best.mean - found.default.mean)
    assert found.gain > 0
    assert found.tuned_arm().recipe.optimizer["lr"] == nearest
    assert found.tuned_arm().recipe.vary == found.arm.recipe.vary


def test_the_choice_is_that_of_brute_force_in_both_directions(root: Path) -> None:
    for metric, higher, pick in (("test_accuracy", True, max), ("test_loss", False, min)):
        fleet = MadeUpFleet(root / metric, peaked(1e-3, noise=0.0))
        found = tune(make_arm("baseline", SMALL), search(metric=metric, higher_is_better=higher), fleet)
        means = [statistics.fmean(each.values) for each in found.tries]
        assert found.best.mean == pick(means)
        assert found.best is found.tries[means.index(pick(means))], "of two equals the earlier one"


def test_the_recipe_as_written_is_kept_if_nothing_beats_it(root: Path) -> None:
    fleet = MadeUpFleet(root, peaked(3e-3))
    arm = make_arm("baseline", SMALL)
    found = tune(arm, search(), fleet)
    assert found.best is found.default
    assert found.tuned_arm() is arm
    assert "best as written" in found.sentence


def test_sensitivity_is_measured(root: Path) -> None:
    sharp = tune(make_arm("a", SMALL), search(), MadeUpFleet(root / "1", peaked(3e-3, noise=0.01)))
    flat = tune(make_arm("a", SMALL), search(), MadeUpFleet(root / "2", lambda task: {"accuracy": 0.5}))
    assert sharp.seed_deviation == pytest.approx(statistics.stdev([0.01, -0.01]))
    assert sharp.spread == pytest.approx(statistics.stdev(each.mean for each in sharp.tries))
    near = [each for each in sharp.tries if sharp.best.mean - each.mean <= sharp.seed_deviation]
    assert sharp.forgiving == pytest.approx(len(near) / 12)
    assert sharp.forgiving < 0.5
    assert (flat.spread, flat.forgiving) == (0.0, 1.0)


def test_failures_count_as_the_cap_and_never_win(root: Path) -> None:
    def fragile(task: Any) -> dict[str, float]:
        return {} if task.recipe.optimizer["lr"] > 3e-3 else {"accuracy": 0.8}

    found = tune(make_arm("a", SMALL), search(cap=0.1), MadeUpFleet(root, fragile))
    failed = [each for each in found.tries if math.isnan(each.values[0])]
    assert failed
    assert all(each.mean == pytest.approx(0.1) for each in failed)
    assert found.best is found.default
    uncapped = tune(make_arm("a", SMALL), search(), MadeUpFleet(root, fragile))
    assert uncapped.best is uncapped.default
    assert math.isfinite(uncapped.spread)


def test_all_arms_are_tuned_in_one_fleet_and_again_from_the_cache(root: Path) -> None:
    fleet = MadeUpFleet(root, peaked(0.01))
    arms = [make_arm("baseline", SMALL), make_arm("candidate", SMALL, {"model.width": 32})]
    first = tune_arms(arms, search(), fleet)
    assert fleet.calls == 1
    assert [each.from_cache for each in first] == [0, 0]
    again = tune_arms(arms, search(), fleet)
    assert [each.best for each in again] == [each.best for each in first]
    assert [each.from_cache for each in again] == [24, 24]


# -- the comparison after it -------------------------------------------------------------------------------


def comparison(root: Path, metrics: Any, changes=None, source=None, **rules: Any) -> Any:
    made = prepare(source or SMALL, changes=changes or {"model.width": 32}, rules=Rules(margin=0.02, **rules))
    made.fleet = MadeUpFleet(root, metrics)
    made.folder = root / "comparisons" / made.folder.name
    return made


def with_width(best_wide: float, best_narrow: float) -> Any:
    """A wide network that is better by a little, whose best rate is another."""

    def metrics(task: Any) -> dict[str, float]:
        wide = task.recipe.model["width"] == 32
        away = math.log10(task.recipe.optimizer["lr"] / (best_wide if wide else best_narrow))
        luck = 0.02 * math.sin(task.seed * 12.9898) + 0.01 * math.cos(task.seed * 7.1 + wide)
        return {"accuracy": 0.8 + 0.05 * wide - 0.1 * away**2 + luck}

    return metrics


def test_a_tuned_comparison_says_so_and_uses_other_seeds(root: Path) -> None:
    said: list[str] = []
    plain = comparison(root, with_width(3e-2, 3e-3))
    tuned = tuned_comparison(plain, "lr", 12, said.append)
    assert isinstance(tuned, TunedComparison)
    assert [arm.recipe.optimizer["lr"] for arm in plain.arms] == [3e-3, 3e-3]
    assert tuned.arms[1].recipe.optimizer["lr"] > 1e-2
    assert "no validation data" in said[0]
    assert "seeds that the comparison does not use" in said[0]
    untuned = plain.run()
    verdict = tuned.run()
    assert (untuned.outcome, verdict.outcome) == ("worse", "better"), "tuning is worth as much as changing"
    seeds = {task.seed for task in tuned.fleet.asked}
    assert {seed for seed in seeds if seed >= TUNING_SEEDS} == set(SEEDS)
    assert set(verdict.seeds).isdisjoint(SEEDS)
    result = json.loads((tuned.folder / "result.json").read_text())
    assert result["label"] == "after equal tuning of 12 settings an arm"
    assert result["sentence"].startswith("after equal tuning of 12 settings an arm: better")
    assert [each["tries"] for each in result["tuning"]] == [12, 12]
    record = json.loads((tuned.folder / "tuning.json").read_text())
    assert [len(each["tries"]) for each in record["arms"]] == [12, 12]
    assert record["metric"] == "test_accuracy"
    assert tuned.folder != plain.folder


def test_the_test_data_is_untouched_where_there_is_validation_data(root: Path) -> None:
    def metrics(task: Any) -> dict[str, float]:
        return {"accuracy": 0.5, "validation_accuracy": peaked(1e-2)(task)["accuracy"]}

    said: list[str] = []
    source = {**SMALL, "data": {"name": "digits", "limit": 240, "validation": 0.2}}
    tuned = tuned_comparison(comparison(root, metrics, source=source), ["lr"], 6, said.append)
    assert "validation_accuracy, so that the test data is untouched" in said[0]
    assert tuned.tunings[0].search.metric == "validation_accuracy"
    assert tuned.tunings[0].gain > 0


def test_asked_again_it_goes_on_with_the_same_choice(root: Path) -> None:
    first = tuned_comparison(comparison(root, with_width(3e-2, 3e-3)), "lr", 6)
    verdict = first.run()
    again = tuned_comparison(comparison(root, with_width(3e-2, 3e-3)), "lr", 6)
    assert (again.folder, again.exploratory) == (first.folder, [])
    assert again.run().interval == verdict.interval
    assert not again.fleet.trained, "everything was there"
    other = tuned_comparison(comparison(root, with_width(3e-2, 3e-3)), "lr", 12)
    assert "tuned before with 6 settings of lr" in other.exploratory[0]
    assert (
        tuned_comparison(comparison(root, with_width(3e-2, 3e-3)), "lr", 12).exploratory == other.exploratory
    )


def test_a_margin_that_is_not_given_is_that_of_the_tuned_baseline(root: Path) -> None:
    made = prepare(SMALL, changes={"model.width": 32})
    made.fleet = MadeUpFleet(root, with_width(3e-2, 3e-3))
    made.folder = root / "comparisons" / made.folder.name
    made.run()
    tuned = tuned_comparison(made, "lr", 6)
    assert tuned.declaration.margin is None
    verdict = tuned.run()
    assert verdict.margin == pytest.approx(statistics.stdev(verdict.baseline) / 2)


@pytest.mark.parametrize(
    ("changes", "names", "sentence"),
    [
        ({"optimizer.lr": 0.1}, "lr", "differ only in optimizer.lr"),
        ({"clip": "norm"}, "clip.limit", "clip 'none' has no setting 'limit'"),
        ({"model.width": 32}, ",", "at least one setting"),
        ({"model.width": 32}, "lr,model.norm", "cannot be tuned"),
        ({"model.width": 32}, "lr,lr", "named twice"),
    ],
)
def test_a_tuning_that_makes_no_sense_is_refused_before_training(
    root: Path, changes, names: str, sentence: str
) -> None:
    made = comparison(root, with_width(1, 1), changes)
    with pytest.raises(UsageError, match=sentence):
        tuned_comparison(made, names, 6)
    assert not made.fleet.asked


def test_real_training_is_tuned(tmp_path: Path) -> None:
    slow = {**SMALL, "optimizer": {"name": "adamw", "lr": 1e-4}, "epochs": 2}
    options = {"options": Options(runs_root=tmp_path), "backend": "loop"}
    made = prepare(
        slow, changes={"model.activation": "tanh"}, rules=Rules(margin=0.05, looks=(6,)), **options
    )
    tuned = tuned_comparison(made, "lr", 5)
    assert all(each.gain > 0 for each in tuned.tunings), "more than a ten thousandth is better here"
    assert all(arm.recipe.optimizer["lr"] > 1e-4 for arm in tuned.arms)
    best, cap = tuned.tunings[0].best, tuned.tunings[0].search.cap
    assert {run.seed for run in find_runs(tmp_path)} == set(SEEDS)
    assert best.mean == pytest.approx(statistics.fmean(max(value, cap) for value in best.values))
    assert tuned.run().pairs == 6
