"""The number of a replica as the mean of its last evaluations: from the declaration to the page."""

import importlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apoint.data.loading import use_dataset_cache
from apoint.engine import Options, train
from apoint.engine.fleet import Task
from apoint.errors import UsageError
from apoint.report import write_comparison_report, write_improvement_report
from apoint.store import Run, RunWriter
from apoint.store.sealed import read_sealed, write_sealed
from apoint.trials import Rules, make_arm, read_declaration, read_result, tuned_comparison
from apoint.trials.compare import compare
from apoint.trials.comparison import prepare
from apoint.trials.evaluations import assembled, check_evaluations
from apoint.trials.improve import prepare_improvement
from apoint.trials.outcome import resolution
from apoint.trials.search import read_declared
from apoint.verdict import Verdict, decide
from tests.trials.conftest import SMALL
from tests.trials.test_improve import KEPT, MadeUpFleet

WORSE = {"optimizer.lr": 1e-5}
WORDS = "test_accuracy, mean of the last 2 evaluations"
QUICK: dict[str, Any] = {"backend": "loop", "report": False}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Records need not survive a power cut here, and the data is read once."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with use_dataset_cache(KEPT):
        yield


def rows(folder: Path, metric: str) -> list[float]:
    """A curve as it stands in the file, without the reader that the product uses."""
    split, _, name = metric.partition("_")
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if line["split"] == split]


def only_folder(root: Path) -> Path:
    (folder,) = (root / "comparisons").iterdir()
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Verdict, list[str]]:
    """One comparison by the mean of the last two evaluations, made once."""
    root, said = tmp_path_factory.mktemp("made"), []
    verdict = compare(SMALL, changes=WORSE, last=2, runs_root=root, say=said.append, **QUICK)
    return root, verdict, said


# -- a comparison ------------------------------------------------------------------------------------------


def test_the_numbers_are_the_means_of_the_last_rows(made: Any) -> None:
    root, verdict, _ = made
    result = read_result(only_folder(root))
    assert result is not None
    for arm, values in zip(result["arms"], (verdict.baseline, verdict.candidate), strict=True):
        curves = [rows(root / name, "test_accuracy") for name in arm["runs"]]
        capped = np.maximum([np.mean(curve[-2:]) for curve in curves], verdict.failures.cap)
        assert values == pytest.approx(capped)
        assert values != pytest.approx([curve[-1] for curve in curves])


def test_it_is_declared_and_told_everywhere(made: Any) -> None:
    root, verdict, said = made
    folder = only_folder(root)
    assert (verdict.last, verdict.metric) == (2, "test_accuracy")
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))).last == 2
    assert f"{WORDS}, is lower by" in verdict.sentence
    assert any(f"in {WORDS}: half" in line for line in said)
    declared = read_declaration(folder)
    assert declared is not None
    assert (declared.last, declared.number) == (2, WORDS)
    assert (read_result(folder) or {})["verdict"]["last"] == 2
    page = write_comparison_report(folder).read_text()
    assert page.count("test accuracy, mean of the last 2 evaluations") >= 3  # headline, lead, declaration


def test_one_evaluation_is_not_worth_a_word() -> None:
    verdict = decide([0.9, 0.91, 0.92], [0.9, 0.91, 0.93], metric="test_accuracy", looks=(3,))
    assert (verdict.last, "mean of" in str(verdict)) == (1, False)
    assert "test_accuracy is" in verdict.sentence


def test_other_evaluations_are_other_rules(made: Any, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(made[0], root)
    again = compare(SMALL, changes=WORSE, last=2, runs_root=root, **QUICK)
    assert again.to_dict() == made[1].to_dict()
    other = compare(SMALL, changes=WORSE, runs_root=root, **QUICK)
    assert other.exploratory == (f"metric was declared as {WORDS} and is now test_accuracy",)
    third = compare(SMALL, changes=WORSE, last=3, runs_root=root, **QUICK)
    assert third.exploratory[0].endswith("and is now test_accuracy, mean of the last 3 evaluations")
    assert len(list((root / "comparisons").iterdir())) == 3


def test_a_declaration_from_before_means_the_last_evaluation(tmp_path: Path) -> None:
    first = compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK)
    path = only_folder(tmp_path) / "declaration.json"
    values = read_sealed(path)
    assert values.pop("last") == 1
    write_sealed(path, values)
    declared = read_declaration(path.parent)
    assert declared is not None
    assert declared.last == 1
    again = compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK)
    assert again.to_dict() == first.to_dict()
    write_sealed(path, {name: value for name, value in values.items() if name != "alpha"})
    with pytest.raises(UsageError, match="another version of apoint"):
        read_declaration(path.parent)


def test_the_step_of_a_mean_is_finer() -> None:
    assert resolution("test_accuracy", 1, 50) == 1 / 50
    assert resolution("validation_average_accuracy", 4, 50) == 1 / 200
    assert resolution("test_loss", 4, 50) is None
    comparison = prepare(SMALL, changes=WORSE, rules=Rules(last=3))
    assert comparison._resolution() == 1 / (3 * comparison.test_size)


# -- are there enough evaluations? -------------------------------------------------------------------------


def most_allowed(recipe: dict[str, Any]) -> int:
    """The largest number of evaluations that is not refused."""
    replica, most = assembled(make_arm("baseline", recipe), 0, Options()), 0
    for last in range(1, 100):
        try:
            check_evaluations(replica, last, "baseline")
        except UsageError:
            break
        most = last
    return most


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 2},
        {"epochs": 2, "evaluate_every": "3 steps"},
        {"epochs": 2.5, "evaluate_every": "1 epoch"},
        {"epochs": None, "steps": 10, "evaluate_every": "30%"},
        {"epochs": None, "steps": 3, "evaluate_every": "5 epochs"},
        {"batch_size": 100, "evaluate_every": "2 steps"},
        {"early_stop": {"metric": "test_loss", "patience": 1, "minimum_change": 100.0}, "epochs": 5},
        {"early_stop": {"metric": "test_loss", "patience": 3, "minimum_change": 100.0}, "epochs": 5},
        {"early_stop": {"metric": "test_loss", "patience": 9, "minimum_change": 100.0}, "epochs": 2},
    ],
)
def test_as_many_are_allowed_as_training_makes(changes: dict[str, Any], tmp_path: Path) -> None:
    """At least: with a rule that always stops early, exactly."""
    recipe = {name: value for name, value in {**SMALL, **changes}.items() if value is not None}
    run = train(recipe, seed=0, runs_root=tmp_path)
    assert most_allowed(recipe) == len(rows(run.folder, "test_loss"))


@pytest.mark.parametrize("last", [4, 5, 7, 20, 21])
def test_what_is_advised_is_enough(last: int) -> None:
    with pytest.raises(UsageError) as caught:
        check_evaluations(assembled(make_arm("baseline", SMALL), 0, Options()), last, "baseline")
    assert str(caught.value).startswith("baseline is evaluated 3 times in its 21 steps")
    advised = str(caught.value).split("set evaluate_every to ")[1].split(" or fewer")[0]
    assert most_allowed({**SMALL, "evaluate_every": advised}) >= last


@pytest.mark.parametrize(
    ("changes", "last", "sentence"),
    [
        ({"evaluate_every": "100%"}, 2, "candidate is evaluated once in its 21 steps, and --last 2 needs 2"),
        ({"batch_size": 96}, 7, "baseline is evaluated 3 times in its 21 steps"),
        (WORSE, 22, "--last 22 needs 22; train longer, or ask for fewer"),
        (
            {"early_stop": {"metric": "test_loss", "patience": 1}},
            3,
            "candidate may stop early with 2 evaluations.*early_stop.patience to 2 or more",
        ),
        ({"model.width": 16}, 9, "these recipes are the same"),
        (WORSE, 0, "whole number of evaluations, at least 1, got 0"),
        (WORSE, 2.5, "at least 1, got 2.5"),
        (WORSE, True, "at least 1, got True"),
    ],
)
def test_too_few_are_refused_before_training(
    changes: dict[str, Any], last: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=sentence):
        compare(SMALL, changes=changes, last=last, runs_root=tmp_path, **QUICK)
    assert not list(tmp_path.iterdir())


# -- tuning and improving ----------------------------------------------------------------------------------


class Curves(MadeUpFleet):
    """A made-up fleet whose replicas are evaluated three times: each metric has three values."""

    def _write(self, task: Task, folder: Path) -> None:
        self.trained.append(task)
        env = {"name": task.recipe.name, "fingerprint": task.recipe.fingerprint, "seed": task.seed}
        values: dict[str, Any] = dict(self.metrics(task))
        with RunWriter.create(folder, f"name: {task.recipe.name}\n", "", env) as writer:
            for step in range(3):
                now = {name: curve[step] for name, curve in values.items()}
                for split in ("validation", "test"):
                    writer.metric(step=step + 1, epoch=step + 1.0, split=split, **now)
            writer.status("finished", step=3)


def luck(task: Task) -> float:
    return 0.02 * float(np.sin(task.seed * 12.9898))


def late(good: Callable[[Task], bool]) -> Callable[[Task], dict[str, Any]]:
    """What is good is better by every evaluation but the last, which says the opposite."""

    def metrics(task: Task) -> dict[str, Any]:
        jitter = 0.002 * float(np.cos(task.seed * 7.1 + task.recipe.model["width"]))
        value = 0.6 + luck(task) + jitter
        gain = 0.1 if good(task) else 0.0
        return {"accuracy": [value + gain, value + gain, value - gain / 2]}

    return metrics


def wide(task: Task) -> bool:
    return bool(task.recipe.model["width"] == 32)


@pytest.mark.parametrize(("last", "effect"), [(1, -0.05), (3, 0.05)])
def test_a_search_goes_by_the_mean_at_every_stage(
    last: int, effect: float, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    fleet = Curves(root, late(wide))
    monkeypatch.setattr(
        importlib.import_module("apoint.trials.improve"), "Fleet", lambda *_, **settings: fleet
    )
    search = prepare_improvement(
        SMALL,
        "1h",
        ["model.width=32", "model.width=16 optimizer.lr=0.0031"],
        only_mine=True,
        rules=Rules(margin=0.01, last=last),
    )
    search.folder = root / "improvements" / search.folder.name
    found = search.run()
    (entry,) = [each for each in found.evidence["screen"] if each["label"] == "model.width=32"]
    assert entry["effect"] == pytest.approx(effect, abs=0.003), "the screen chooses by the mean too"
    assert found.evidence["declaration"]["last"] == last
    assert bool(found.changes) == (last == 3)
    if last == 3:
        assert found.verdict is not None
        assert found.verdict.effect == pytest.approx(0.05, abs=0.003)
        assert "test_accuracy, mean of the last 3 evaluations, is better by" in str(found)
        check = found.evidence["checks"][0]
        declared = read_declaration(root / "comparisons" / check["comparison"])
        assert declared is not None
        assert declared.last == 3
        result = read_result(root / "comparisons" / check["comparison"])
        assert "--metric test_accuracy --last 3 " in (result or {})["reproduce"]
        page = write_improvement_report(found.folder).read_text()
        assert page.count("test accuracy, mean of the last 3 evaluations") >= 2


def test_a_search_from_before_means_the_last_evaluation(tmp_path: Path) -> None:
    from tests.trials.test_screening import rules

    values = rules().to_dict()
    assert values.pop("last") == 1
    write_sealed(tmp_path / "declaration.json", values)
    assert read_declared(tmp_path) == replace(rules(), created=values["created"])


def test_a_search_leaves_out_what_is_evaluated_too_seldom(root: Path) -> None:
    source = {**SMALL, "evaluate_every": "7 steps"}
    with pytest.raises(UsageError, match=r"cannot be tried.*evaluated twice|evaluated 2 times"):
        prepare_improvement(
            source, "1h", ["batch_size=56"], only_mine=True, rules=Rules(last=3), options=Options(root)
        )


def comparison(root: Path, good: Callable[[Task], bool], **rules: Any) -> Any:
    made = prepare(SMALL, changes={"model.width": 32}, rules=Rules(margin=0.02, **rules))
    made.fleet, made.folder = Curves(root, late(good)), root / "comparisons" / made.folder.name
    return made


@pytest.mark.parametrize("last", [1, 3])
def test_tuning_goes_by_the_mean(last: int, root: Path) -> None:
    def fast(task: Task) -> bool:
        return bool(task.recipe.optimizer["lr"] > 3e-3)

    said: list[str] = []
    tuned = tuned_comparison(comparison(root, fast, last=last), "lr", 6, said.append)
    for each in tuned.tunings:
        assert (each.tuned_arm().recipe.optimizer["lr"] > 3e-3) == (last == 3)
        assert each.default.values == pytest.approx(
            [np.mean(rows(task.folder(root), "test_accuracy")[-last:]) for task in asked(tuned, each.arm)]
        )
    assert any("mean of the last 3 evaluations, 0." in line for line in said) == (last == 3)
    assert json.loads((tuned.folder / "tuning.json").read_text())["last"] == last
    assert tuned.declaration.last == last


def asked(tuned: Any, arm: Any) -> list[Task]:
    """The replicas of an arm's settings as written."""
    return [
        task for task in tuned.fleet.trained if task.recipe.fingerprint == arm.recipe.fingerprint
    ]  # fmt: skip


def test_a_setting_that_is_evaluated_too_seldom_is_refused_before_tuning(root: Path) -> None:
    made = comparison(root, wide, last=3)
    slow = tuple(
        make_arm(arm.name, arm.document, {"evaluate_every": "7 steps"}) for arm in made.arms
    )  # fmt: skip
    made.arms = slow
    with pytest.raises(UsageError, match=r"baseline is evaluated .* --last 3 needs 3"):
        tuned_comparison(made, "batch_size", 6)
    assert not made.fleet.asked


def test_asking_for_another_tuning_is_said(root: Path) -> None:
    tuned_comparison(comparison(root, wide, last=3), "lr", 6)
    again = tuned_comparison(comparison(root, wide), "lr", 6)
    assert any("tuned before with 6 settings of lr" in reason for reason in again.exploratory)


# -- averaged weights --------------------------------------------------------------------------------------


def test_averaged_weights_are_compared_where_both_have_them(tmp_path: Path) -> None:
    source = {**SMALL, "average": {"decay": 0.9}}
    verdict = compare(
        source, changes=WORSE, metric="test_average_accuracy", last=2, runs_root=tmp_path, **QUICK
    )
    result = read_result(only_folder(tmp_path))
    assert result is not None
    curves = [rows(tmp_path / name, "test_average_accuracy") for name in result["arms"][0]["runs"]]
    assert verdict.baseline == pytest.approx([np.mean(curve[-2:]) for curve in curves])
    assert curves[0] != rows(tmp_path / result["arms"][0]["runs"][0], "test_accuracy")
    assert Run(tmp_path / result["arms"][0]["runs"][0]).result("test_average_accuracy") == curves[0][-1]


@pytest.mark.parametrize(
    ("source", "changes", "who"),
    [
        (SMALL, {"average.decay": 0.9}, "baseline"),
        ({**SMALL, "average": {"decay": 0.9}}, {"average": None}, "candidate"),
        (SMALL, WORSE, "baseline and candidate"),
    ],
)
def test_the_arm_without_averaged_weights_is_named(source: Any, changes: Any, who: str) -> None:
    sentence = f"there is no average in {who}; set average.decay=0.99 .* or choose test_accuracy"
    with pytest.raises(UsageError, match=sentence):
        prepare(source, changes=changes, rules=Rules(metric="test_average_accuracy"))
