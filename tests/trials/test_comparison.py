"""Comparisons from the declaration to the verdict, on networks that train in a tenth of a second."""

import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

import apoint
from apoint.engine import train
from apoint.engine.fleet import Fleet
from apoint.errors import DivergedError, UsageError
from apoint.store import Catalogue, Run, find_runs
from apoint.trials import Rules, read_declaration, read_result
from apoint.trials.compare import compare, split_settings
from apoint.trials.comparison import MARGIN_RULE, prepare
from apoint.verdict import decide

WORSE = {"optimizer.lr": 1e-5}
QUICK: dict[str, Any] = {"backend": "loop", "report": False}


def only_folder(root: Path) -> Path:
    (folder,) = (root / "comparisons").iterdir()
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[str]]:
    """One comparison with a clear answer, made once."""
    from tests.trials.conftest import SMALL

    root, said = tmp_path_factory.mktemp("made"), []
    verdict = compare(SMALL, changes=WORSE, runs_root=root, say=said.append, **QUICK)
    return root, verdict, said


def test_a_clear_effect_is_called_at_the_first_look(made: Any) -> None:
    root, verdict, _ = made
    assert verdict.outcome == "worse"
    assert verdict.pairs in (6, 7, 8)
    assert len(find_runs(root)) == 2 * verdict.pairs
    assert verdict.metric == "test_accuracy"
    assert verdict.seeds == tuple(range(verdict.pairs))


def test_the_verdict_is_that_of_the_runs_own_numbers(made: Any) -> None:
    root, verdict, _ = made
    result = read_result(only_folder(root))
    assert result is not None
    columns = [
        [Run(root / name).metrics.last("test_accuracy") for name in arm["runs"]] for arm in result["arms"]
    ]
    declared = result["declaration"]
    again = decide(
        *columns, margin=declared["margin"], looks=tuple(declared["looks"]), cap=declared["cap"]["value"]
    )
    assert again.interval == verdict.interval
    assert again.outcome == verdict.outcome
    for name, arm in zip(("baseline", "candidate"), result["arms"], strict=True):
        seeds = [Run(root / run).seed for run in arm["runs"]]
        assert seeds == list(range(verdict.pairs)), name


def test_the_runs_say_which_arm_they_are(made: Any) -> None:
    root, _, _ = made
    result = read_result(only_folder(root))
    assert result is not None
    with Catalogue(root) as catalogue:
        catalogue.refresh()
        listed = {each.folder.name: each.changes for each in catalogue.summaries()}
    told = [{listed[Path(name).name] for name in arm["runs"]} for arm in result["arms"]]
    assert told == [{""}, {"optimizer.lr=1e-5"}]


def test_the_default_margin_is_half_the_baselines_deviation(made: Any) -> None:
    import numpy

    _, verdict, said = made
    assert verdict.margin == pytest.approx(numpy.std(verdict.baseline, ddof=1) / 2)
    assert any(MARGIN_RULE in line for line in said)


def test_both_arms_of_the_first_look_are_trained_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are needed anyway, and keep all workers busy."""
    from tests.trials.conftest import SMALL

    calls: list[int] = []
    whole = Fleet.train
    monkeypatch.setattr(
        Fleet, "train", lambda self, tasks, *rest: (calls.append(len(tasks)), whole(self, tasks, *rest))[1]
    )
    compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK)
    assert calls[0] == 12


def test_the_data_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apoint.data.loading import Origin
    from tests.trials.conftest import SMALL

    read: list[str] = []
    whole = Origin.read
    monkeypatch.setattr(Origin, "read", lambda self: (read.append(self.name), whole(self))[1])
    compare(SMALL, changes=WORSE, runs_root=tmp_path, **QUICK)
    assert len(read) == 1


def test_pairs_share_what_they_can_share(made: Any) -> None:
    """With the seed's split, order and initial weights shared, the arms begin with the same loss."""
    root, verdict, _ = made
    result = read_result(only_folder(root))
    assert result is not None
    for first, second in zip(*(arm["runs"] for arm in result["arms"]), strict=True):
        one, other = Run(root / first), Run(root / second)
        assert one.env["key"]["data"] == other.env["key"]["data"]
    data = {Run(root / run).env["key"]["data"] for run in result["arms"][0]["runs"]}
    assert len(data) == verdict.pairs, "the split varies with the seed"


def test_again_trains_nothing_and_says_the_same(made: Any) -> None:
    from tests.trials.conftest import SMALL

    root, verdict, _ = made
    before = {run.folder: (run.folder / "metrics.jsonl").stat().st_mtime_ns for run in find_runs(root)}
    again = compare(SMALL, changes=WORSE, runs_root=root, **QUICK)
    assert again.to_dict() == verdict.to_dict()
    assert before == {
        run.folder: (run.folder / "metrics.jsonl").stat().st_mtime_ns for run in find_runs(root)
    }
    result = read_result(only_folder(root))
    assert result is not None
    assert result["cost"]["from_cache"] == 16


def test_another_rule_afterwards_is_exploratory(made: Any, tmp_path: Path) -> None:
    from tests.trials.conftest import SMALL

    root = tmp_path / "runs"
    shutil.copytree(made[0], root)
    looser = compare(SMALL, changes=WORSE, runs_root=root, margin=0.5, **QUICK)
    assert len(looser.exploratory) == 1
    assert "margin was declared as half the standard deviation" in looser.exploratory[0]
    shorter = compare(SMALL, changes={**WORSE, "epochs": 2}, runs_root=root, shared={"epochs": 2}, **QUICK)
    assert any("budget was declared as epochs 3" in reason for reason in shorter.exploratory)
    first = compare(SMALL, changes=WORSE, runs_root=root, **QUICK)
    assert first.exploratory == ()
    assert len(list((root / "comparisons").iterdir())) == 3


def test_the_declaration_is_there_before_the_first_replica(base: Path, root: Path) -> None:
    """The rule that gives the margin is on disk before anything is trained, and never changes."""
    seen: list[tuple[int, Any]] = []

    def say(sentence: str) -> None:
        kept = read_declaration(only_folder(root)) if (root / "comparisons").exists() else None
        seen.append((len(list(find_runs(root))), kept.margin_rule if kept else "no declaration"))

    compare(base, changes=WORSE, runs_root=root, say=say, **QUICK)
    assert (0, MARGIN_RULE) in seen
    assert {stated for number, stated in seen if number > 0} == {MARGIN_RULE}


def test_the_margin_depends_on_the_baseline_alone(base: Path, root: Path, tmp_path: Path) -> None:
    verdicts = [
        compare(base, changes=changes, runs_root=folder, **QUICK)
        for changes, folder in ((WORSE, root), ({"optimizer.lr": 3.0001e-3}, tmp_path / "other"))
    ]
    for verdict in verdicts:
        for look in verdict.looks:
            assert look.margin == pytest.approx(statistics.stdev(verdict.baseline[: look.pairs]) / 2)
    assert verdicts[0].looks[0].margin == verdicts[1].looks[0].margin


def test_nearly_nothing_is_equivalent(base: Path, root: Path) -> None:
    verdict = compare(base, changes={"optimizer.lr": 3.0001e-3}, runs_root=root, margin=0.05, **QUICK)
    assert verdict.outcome == "equivalent"


def test_a_candidate_that_diverges_is_worse_and_counted(base: Path, root: Path) -> None:
    exploding = {"optimizer.name": "sgd", "optimizer.lr": 1e25}
    verdict = compare(base, changes=exploding, runs_root=root, **QUICK)
    assert verdict.outcome == "worse"
    assert verdict.failures.candidate == verdict.pairs
    assert verdict.failures.only_candidate == verdict.pairs
    assert verdict.failures.p == pytest.approx(2 / 2**verdict.pairs)
    assert set(verdict.candidate) == {verdict.failures.cap}


def test_a_baseline_that_diverges_is_told(base: Path, root: Path) -> None:
    with pytest.raises(DivergedError, match=r"the baseline failed in 6 of its first 6 seeds.*--margin"):
        compare(base, changes={"optimizer.lr": 1e-3}, shared={"optimizer.name": "sgd", "optimizer.lr": 1e25},
                runs_root=root, **QUICK)  # fmt: skip


def test_anytime_looks_after_every_pair(base: Path, root: Path) -> None:
    verdict = compare(base, changes=WORSE, runs_root=root, margin=0.05, anytime=True, max_pairs=16, **QUICK)
    assert verdict.outcome == "worse"
    assert verdict.anytime
    assert len(find_runs(root)) < 32
    assert [look.pairs for look in verdict.looks] == sorted({look.pairs for look in verdict.looks})


def test_undecided_says_what_it_would_take(base: Path, root: Path) -> None:
    change = {"optimizer.lr": 3.3e-3}
    verdict = compare(base, changes=change, runs_root=root, margin=1e-9, looks=(4, 6), **QUICK)
    assert verdict.outcome == "undecided"
    assert [look.pairs for look in verdict.looks] == [4, 6]
    kept = read_result(only_folder(root))
    assert kept is not None
    assert [look["pairs"] for look in kept["verdict"]["looks"]] == [4, 6]


def test_finished_replicas_of_an_ordinary_training_are_used(base: Path, root: Path) -> None:
    every = ["init", "order", "augmentation", "dropout", "split"]
    for seed in range(3):
        train(base, seed, {"vary": every}, runs_root=root, threads=1)
    compare(base, changes=WORSE, runs_root=root, **QUICK)
    result = read_result(only_folder(root))
    assert result is not None
    assert result["cost"]["from_cache"] == 3


def test_two_recipes(base: Path, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(base.read_text().replace('"lr": 0.003', '"lr": 1e-05').replace("small", "slow"))
    verdict = compare(base, other, runs_root=root, **QUICK)
    assert verdict.outcome == "worse"
    assert only_folder(root).name.startswith("small-vs-slow-")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"margin": 0}, "must be above 0, got 0"),
        ({"margin": -1.0}, "must be above 0"),
        ({"max_pairs": 1}, "cannot tell an effect from the noise of seeds"),
        ({"looks": (1,)}, "looks must be rising whole numbers"),
        ({"looks": (8, 16), "anytime": True}, "not both"),
        ({"metric": "test_acuracy"}, "did you mean 'test_accuracy'"),
        ({"metric": "train_loss"}, "what was learned from"),
        ({"alpha": 1.5}, "alpha must be between 0 and 1"),
        ({"budget": "soon"}, "such as 20m"),
        ({"marign": 1}, "did you mean 'margin'"),
        ({"backend": "poool"}, "pool"),
    ],
)
def test_wrong_rules_are_refused_before_anything_is_made(
    base: Path, root: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        compare(base, changes=WORSE, runs_root=root, **{**QUICK, **settings})
    assert not root.exists()


def test_nothing_to_compare(base: Path, root: Path) -> None:
    with pytest.raises(UsageError, match="needs a second recipe"):
        compare(base, runs_root=root, **QUICK)
    with pytest.raises(UsageError, match="these recipes are the same"):
        compare(base, changes={"model.dropout": 0}, runs_root=root, **QUICK)


def test_a_budget_plans_its_looks_and_keeps_to_its_plan(base: Path, root: Path) -> None:
    asked = {"rules": Rules(budget="40s"), "backend": "loop"}
    options = split_settings({"runs_root": root})["options"]
    comparison = prepare(base, changes=WORSE, options=options, **asked)
    planned = comparison.declaration.looks
    assert 6 <= planned[0] <= planned[-1] <= 32
    with comparison.fleet:
        comparison.run()
    again = prepare(base, changes=WORSE, options=options, **asked)
    assert again.declaration.looks == planned
    assert again.exploratory == []
    with pytest.raises(UsageError, match="room for"):
        prepare(
            base, changes={"optimizer.lr": 1e-4}, options=options, backend="loop", rules=Rules(budget="0.01s")
        )


def test_public_name() -> None:
    assert apoint.compare is compare
