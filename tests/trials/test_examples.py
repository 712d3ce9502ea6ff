"""Comparisons that speak of new test examples too: beside the verdict over seeds, or instead of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apoint.errors import DamagedError, UsageError
from apoint.report import write_comparison_report
from apoint.store import Run
from apoint.store.layout import EXAMPLES
from apoint.store.sealed import write_sealed
from apoint.trials import Rules, read_declaration, read_result
from apoint.trials.compare import compare
from apoint.trials.comparison import Comparison, prepare
from apoint.trials.examples import TOO_FEW, PairedExamples
from apoint.verdict import decide, example_noise
from tests.trials.conftest import SMALL

QUICK: dict[str, Any] = {"backend": "loop", "report": False}
LESS = {"optimizer.lr": 2.5e-3}  # a little worse
REGRESSION = {
    "name": "regression",
    "data": {"name": "teacher", "num_samples": 200},
    "model": {"name": "mlp", "depth": 1, "width": 8},
    "loss": "squared-error",
    "batch_size": 32,
    "epochs": 2,
}


def folder_of(root: Path) -> Path:
    return min((root / "comparisons").iterdir(), key=lambda path: len(path.name))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A comparison on one test set, made once."""
    root = tmp_path_factory.mktemp("made")
    return root, compare(SMALL, changes=LESS, runs_root=root, looks=(4, 6), vary=["init", "order"], **QUICK)


def columns(root: Path) -> list[list[Run]]:
    result = read_result(folder_of(root))
    assert result is not None
    return [[Run(root / name) for name in arm["runs"]] for arm in result["arms"]]


def test_the_interval_over_both_is_that_of_the_runs_own_examples(made: Any) -> None:
    root, verdict = made
    baseline, candidate = columns(root)
    differences = [
        second.examples("test_accuracy").values - first.examples("test_accuracy").values  # type: ignore[union-attr]
        for first, second in zip(baseline, candidate, strict=True)
    ]
    noise = example_noise(differences)
    means = [pair.mean() for pair in differences]
    np.testing.assert_allclose(means, np.array(verdict.candidate) - verdict.baseline, atol=1e-12)
    again = decide(
        verdict.baseline, verdict.candidate, verdict.margin, (4, 6), resolution=1 / 359, examples=noise
    )
    assert again.both_interval == pytest.approx(verdict.both_interval)
    assert again.both_outcome == verdict.both_outcome != ""
    assert noise.error(verdict.pairs) > 0
    assert verdict.both_interval[0] < verdict.interval[0] < verdict.interval[1] < verdict.both_interval[1]
    assert (verdict.test_examples, verdict.test_pool, verdict.test_noise) == (359, 359, "beside")


def test_the_card_and_the_page_say_both(made: Any) -> None:
    root, verdict = made
    words = (
        f"{verdict.outcome} on these 359 test examples; on new ones from the same source "
        f"{verdict.both_outcome} (95"
    )
    assert words in " ".join(str(verdict).split())
    page = write_comparison_report(folder_of(root)).read_text()
    assert words in page
    assert "Test noise" in page


def test_other_rules_for_the_test_noise_are_exploratory(made: Any) -> None:
    root, before = made
    plan = {"looks": (4, 6), "vary": ["init", "order"]}
    found = compare(SMALL, changes=LESS, runs_root=root, test_noise="include", **plan, **QUICK)
    assert "test noise was declared as beside and is now include" in found.exploratory[0]
    assert found.test_noise == "include"
    assert found.interval == found.both_interval
    assert found.looks[0].interval[0] < before.looks[0].interval[0]
    assert "over seeds and test examples" in str(found)


def test_an_older_declaration_is_read(made: Any, tmp_path: Path) -> None:
    root, _ = made
    declared = read_declaration(folder_of(root))
    assert declared is not None
    values = declared.to_dict()
    assert values.pop("test_noise") == "beside"
    write_sealed(tmp_path / "declaration.json", values)
    assert read_declaration(tmp_path) == declared


def test_what_is_no_mean_over_examples_is_refused_or_said(tmp_path: Path) -> None:
    changes = {"optimizer.lr": 1e-2}
    with pytest.raises(UsageError, match="needs results of single examples: test_rmse is not a mean"):
        compare(REGRESSION, changes=changes, runs_root=tmp_path, test_noise="include", **QUICK)
    assert not (tmp_path / "comparisons").exists(), "before anything is trained"
    verdict = compare(REGRESSION, changes=changes, runs_root=tmp_path, looks=(3,), **QUICK)
    assert verdict.both_outcome == ""
    assert "keeps no test_rmse of single examples" in verdict.both_unknown
    assert "on new ones from the same source not known: " in " ".join(str(verdict).split())


def without_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an earlier apoint had trained the runs."""
    monkeypatch.setattr("apoint.store.writer.RunWriter.examples", lambda *_: None)


def test_runs_of_an_earlier_version_have_no_second_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_examples(monkeypatch)
    verdict = compare(SMALL, changes=LESS, runs_root=tmp_path, looks=(3,), **QUICK)
    assert (verdict.both_outcome, verdict.test_examples) == ("", 0)
    assert "keeps no test_accuracy of single examples" in verdict.both_unknown
    assert all(not (run.folder / EXAMPLES).exists() for run in columns(tmp_path)[0])
    with pytest.raises(UsageError, match=r"--test-noise include cannot decide: small-.* keeps no"):
        compare(SMALL, changes=LESS, runs_root=tmp_path, looks=(3,), test_noise="include", **QUICK)


def test_a_wrong_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="test_noise must be 'beside' or 'include'"):
        Rules(test_noise="both")
    from apoint.trials.improve import prepare_improvement

    with pytest.raises(UsageError, match="improve decides over seeds"):
        prepare_improvement(SMALL, "1m", rules=Rules(test_noise="include"))


def test_the_declaration_says_it_beforehand(tmp_path: Path) -> None:
    comparison = prepare(SMALL, changes=LESS, rules=Rules(test_noise="include"), backend="loop")
    assert isinstance(comparison, Comparison)
    assert comparison.declaration.test_noise == "include"
    assert json.loads(json.dumps(comparison.declaration.to_dict()))["test_noise"] == "include"


def test_replicas_that_fail_leave_the_rest_to_speak(tmp_path: Path) -> None:
    """All candidates diverge: their examples are not known, and that is said."""
    hot = {"optimizer": {"name": "sgd", "lr": 1e30}}
    verdict = compare(SMALL, changes=hot, runs_root=tmp_path, looks=(3, 4), margin=0.01, **QUICK)
    assert verdict.failures.candidate == verdict.pairs
    assert (verdict.both_outcome, verdict.both_unknown) == ("", TOO_FEW)
    included = compare(
        SMALL, changes=hot, runs_root=tmp_path, looks=(3, 4), margin=0.01, test_noise="include", **QUICK
    )
    assert included.outcome == "undecided"


def test_runs_on_different_examples_are_no_pair(tmp_path: Path) -> None:
    from apoint.engine import train

    runs = [train({**SMALL, "vary": ["init", "split"]}, seed=seed, runs_root=tmp_path) for seed in (0, 1)]
    with pytest.raises(DamagedError, match="measured on different examples"):
        PairedExamples().add((runs[0], runs[1]), ("test_accuracy", "test_accuracy"))
