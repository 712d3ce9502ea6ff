"""The study of the mean of the last evaluations: its numbers, its formulas, and its page."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from apoint.trials import differences
from apoint.trials.comparison import prepare
from apoint.verdict import DEFAULT_LOOKS, decide
from studies.quieter_number import __main__ as study
from studies.quieter_number import cases, judged
from studies.quieter_number.cases import CASES, KEPT, NUM_SEEDS, NUMBERS, TEST_SIZES, Case
from studies.quieter_number.judged import LASTS, judge, progress
from tests.trials.conftest import SMALL

KEPT_NUMBERS = json.loads(NUMBERS.read_text())


@pytest.mark.parametrize("name", CASES)
def test_the_kept_numbers_are_whole(name: str) -> None:
    case, arms = CASES[name], KEPT_NUMBERS[name]
    assert list(arms) == ["baseline", *case.changes]
    tails = np.array(list(arms.values()))
    assert tails.shape == (len(arms), NUM_SEEDS, KEPT + ("average" in case.shared))
    assert np.isfinite(tails).all()
    if case.metric.endswith("accuracy"):
        counts = tails * TEST_SIZES[case.recipe]
        assert counts == pytest.approx(np.round(counts), abs=2e-3), "a whole number of examples is right"


@pytest.mark.parametrize("name", CASES)
def test_an_arm_differs_in_nothing_but_its_change(name: str) -> None:
    arms = CASES[name].arms()
    baseline = arms.pop("baseline").recipe.canonical()
    for change, arm in arms.items():
        found = {each["path"] for each in differences(baseline, arm.recipe.canonical())}
        assert found == set(CASES[name].changes[change])


def test_the_figures_are_numpys_and_scipys() -> None:
    name = "digits with SGD, stopped early"
    arms = {arm: np.array(values) for arm, values in KEPT_NUMBERS[name].items()}
    found = next(iter(judge(name, KEPT_NUMBERS[name])))
    assert found.change == "lr 0.03"
    for place, last in enumerate(LASTS):
        old, new = (np.mean(arms[arm][:, 5 - last : 5], axis=1) for arm in ("baseline", "lr 0.03"))
        test = scipy.stats.ttest_rel(new, old)
        assert found.means[place] == pytest.approx(np.mean(new - old))
        assert found.standardised[place] * math.sqrt(NUM_SEEDS) == pytest.approx(test.statistic)
        assert found.correlations[place] == pytest.approx(scipy.stats.pearsonr(old, new).statistic)
        assert found.margins[place] == pytest.approx(np.std(old, ddof=1) / 2)
        assert found.pairs_ratio(place)[0] == pytest.approx(
            (found.standardised[place] / found.standardised[0]) ** 2
        )
        assert found.noise_ratio(place)[0] == pytest.approx(
            np.var(found.differences[0]) / np.var(found.differences[place])
        )
    last, third = arms["baseline"][:, 4], arms["baseline"][:, 2]
    assert progress(name, KEPT_NUMBERS[name]["baseline"]) == pytest.approx(
        np.mean(last - third) / np.std(last, ddof=1)
    )


def test_lower_is_better_is_turned() -> None:
    name = "teacher, constant"
    slower = next(each for each in judge(name, KEPT_NUMBERS[name]) if each.change == "lr 0.03")
    arms = {arm: np.array(values)[:, KEPT - 1].mean() for arm, values in KEPT_NUMBERS[name].items()}
    assert arms["lr 0.03"] > arms["baseline"], "a larger error"
    assert slower.means[0] == pytest.approx(arms["baseline"] - arms["lr 0.03"])
    assert progress(name, KEPT_NUMBERS[name]["baseline"]) > 0


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of the ratio of variances, for Gaussian differences whose ratio is 2."""
    rng, held = np.random.default_rng(3), 0
    for _ in range(200):
        rows = rng.standard_normal((2, NUM_SEEDS)) * np.array([[math.sqrt(2)], [1.0]])
        _, low, high = judged._with_interval(rows, lambda rows: rows[0].var(-1) / rows[1].var(-1))
        held += low <= 2 <= high
    assert 0.88 <= held / 200 <= 0.99


def test_decisions_are_those_of_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "NUM_COMPARISONS", 40)
    name, place = "digits, constant", 2
    found = next(iter(judge(name, KEPT_NUMBERS[name])))
    drawn = np.random.default_rng(7).integers(0, NUM_SEEDS, (40, DEFAULT_LOOKS[-1]))
    verdicts = [
        decide(np.zeros(32), row, found.margins[place], resolution=1 / (3 * 359))
        for row in found.differences[place][drawn]
    ]
    pairs, called, same = found.decisions(place)
    assert pairs == pytest.approx(np.mean([verdict.pairs for verdict in verdicts]))
    assert called == pytest.approx(np.mean([verdict.outcome in ("better", "worse") for verdict in verdicts]))
    assert same == pytest.approx(np.mean([verdict.outcome == "equivalent" for verdict in verdicts]))


def test_the_page_has_the_tables_that_the_numbers_make() -> None:
    page = study.DOCUMENT.read_text()
    assert study.filled(page, study.tables(KEPT_NUMBERS)) == page, "run python -m studies.quieter_number"
    with pytest.raises(AssertionError, match="no place for the table 'pairs'"):
        study.filled("nothing", {"pairs": ""})


def test_training_keeps_the_last_evaluations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "small.yaml").write_text(json.dumps({**SMALL, "epochs": 6}))
    case = Case("small", "constant", {"slow": {"optimizer.lr": 1e-3}}, {"average": {"decay": 0.9}})
    monkeypatch.setattr(cases, "ROOT", tmp_path)
    monkeypatch.setattr(cases, "NUMBERS", tmp_path / "numbers.json")
    monkeypatch.setattr(cases, "CASES", {"small": case})
    cases.train(str(tmp_path / "runs"), 2)
    found = json.loads((tmp_path / "numbers.json").read_text())["small"]
    asked = prepare(
        tmp_path / "recipes" / "small.yaml",
        changes=case.changes["slow"],
        shared=case.shared,
        options=cases.Options(runs_root=tmp_path / "runs"),
    )
    ended = asked.fleet.train(asked.tasks(2))
    assert all(each.cached for each in ended)
    tails = np.array([*found["baseline"], *found["slow"]])
    runs = [cases.Run(each.folder) for each in ended]
    assert tails[:, :5].mean(1) == pytest.approx([run.result("test_accuracy", 5) for run in runs], abs=1e-5)
    assert tails[:, 5] == pytest.approx([run.result("test_average_accuracy") for run in runs], abs=1e-5)
