"""Comparisons that find baseline replicas of earlier ones: declared, read through the seal, counted once."""

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from apoint.cli.compare import command
from apoint.engine import Options
from apoint.engine.fleet import Fleet, Task
from apoint.errors import DamagedError
from apoint.store import Run, find_runs
from apoint.store.sealed import read_sealed, write_sealed
from apoint.trials import Rules, make_arm, prepare, read_declaration, read_result
from apoint.trials.compare import compare
from apoint.verdict import decide
from tests.trials.conftest import SMALL

SLOWER = {"optimizer.lr": 1e-3}
QUICK: dict[str, Any] = {"backend": "loop", "report": False}
KNOWN = 12


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs root in which a comparison has left 12 replicas of the baseline."""
    root = tmp_path_factory.mktemp("earlier")
    compare(SMALL, changes={"optimizer.lr": 1e-5}, looks=(KNOWN,), runs_root=root, **QUICK)
    return root


@pytest.fixture
def root(earlier: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(earlier, tmp_path / "runs"))


def ask(root: Path, said: list[str] | None = None, **settings: Any) -> Any:
    settings = {"looks": (6, 8), "margin": 1e-6, **settings}
    say = None if said is None else said.append
    return compare(SMALL, changes=SLOWER, runs_root=root, say=say, **settings, **QUICK)


def folder_of(root: Path) -> Path:
    (folder,) = (root / "comparisons").glob("*lr=0.001*[0-9a-f]")
    return folder


def baseline_run(root: Path, seed: int) -> Path:
    arm = make_arm("baseline", SMALL)
    return Task(arm.recipe, arm.document, seed).folder(root)


def damage(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_text(path.read_text().replace("0.", "1.", 1))


def test_the_baselines_that_are_there_are_declared_and_used(root: Path) -> None:
    said: list[str] = []
    before = {run.folder.name for run in find_runs(root)}
    verdict = ask(root, said)
    assert "6 cached baseline replicas sharpen the baseline's mean" in said
    declared = read_declaration(folder_of(root))
    assert declared is not None
    assert declared.cached_baselines == tuple(range(6, KNOWN))
    new = {run.folder.name for run in find_runs(root)} - before
    assert len(new) == verdict.pairs, "only candidates were trained"
    values = {seed: Run(baseline_run(root, seed)).result("test_accuracy") for seed in range(KNOWN)}
    assert verdict.further_baseline == tuple(values[seed] for seed in range(verdict.pairs, KNOWN))
    again = decide(
        verdict.baseline,
        verdict.candidate,
        1e-6,
        looks=(6, 8),
        seeds=verdict.seeds,
        cap=declared.cap["value"],
        further_baseline={seed: values[seed] for seed in range(6, KNOWN)},
    )
    assert [(look.effect, look.interval, look.outcome) for look in verdict.looks] == [
        (look.effect, look.interval, look.outcome) for look in again.looks
    ]
    result = read_result(folder_of(root))
    assert result is not None
    assert result["verdict"]["further_baseline"] == list(verdict.further_baseline)


def test_the_announced_margin_counts_them(root: Path) -> None:
    said: list[str] = []
    compare(SMALL, changes={"optimizer.lr": 1e-5}, looks=(6,), runs_root=root, say=said.append, **QUICK)
    scores = [Run(baseline_run(root, seed)).result("test_accuracy") for seed in range(KNOWN)]
    (line,) = (line for line in said if "the smallest difference that matters" in line)
    assert f"about {statistics.stdev(scores) / 2:.3g} in test_accuracy" in line
    assert f"about {statistics.stdev(scores[:6]) / 2:.3g} in test_accuracy" not in line


def test_they_can_be_left_alone(root: Path) -> None:
    said: list[str] = []
    verdict = ask(root, said, cached_baselines=False)
    assert not any("cached baseline" in line for line in said)
    assert verdict.further_baseline == ()
    assert verdict.paired_interval is None
    assert verdict.effect == pytest.approx(
        sum(b - a for a, b in zip(verdict.baseline, verdict.candidate, strict=True)) / verdict.pairs
    )


def test_a_comparison_goes_on_with_those_it_was_declared_with(root: Path) -> None:
    first = ask(root)
    compare(SMALL, changes={"optimizer.lr": 1e-6}, looks=(14,), runs_root=root, **QUICK)  # leaves two more
    declared = read_declaration(folder_of(root))
    assert ask(root) == first
    assert read_declaration(folder_of(root)) == declared


def test_to_leave_them_out_afterwards_is_another_rule(root: Path) -> None:
    ask(root)
    changed = ask(root, cached_baselines=False)
    assert changed.exploratory == ("cached baselines were declared and are now not used",)


def test_to_use_them_afterwards_is_another_rule(root: Path) -> None:
    ask(root, cached_baselines=False)
    changed = ask(root)
    assert changed.exploratory == ("cached baselines were declared as not used and are now used",)
    assert changed.further_baseline


def test_a_damaged_one_is_left_out_before_the_first_look(root: Path) -> None:
    damage(baseline_run(root, 9))
    said: list[str] = []
    ask(root, said)
    assert any("the cached baseline replica of seed 9 is left out" in line for line in said)
    declared = read_declaration(folder_of(root))
    assert declared is not None
    assert declared.cached_baselines == (6, 7, 8, 10, 11)


def test_one_that_is_damaged_after_it_was_declared_is_left_out_before_the_first_look(root: Path) -> None:
    said: list[str] = []
    comparison = prepare(
        SMALL,
        changes=SLOWER,
        rules=Rules(looks=(6, 8), margin=1e-6),
        options=Options(runs_root=root),
        backend="loop",
        say=said.append,
    )
    damage(baseline_run(root, 9))
    with comparison.fleet:
        verdict = comparison.run()
    assert any("seed 9 is not as it was declared" in line and "left out" in line for line in said)
    assert comparison.declaration == read_declaration(folder_of(root))
    assert comparison.declaration.cached_baselines == (6, 7, 8, 10, 11)
    assert len(verdict.further_baseline) == KNOWN - verdict.pairs - 1


def test_after_a_look_a_damaged_one_is_refused(root: Path) -> None:
    ask(root)
    damage(baseline_run(root, 11))
    with pytest.raises(DamagedError, match=r"replica of seed 11 .* looks were made with it; restore"):
        ask(root)


def test_an_older_declaration_is_read(root: Path) -> None:
    ask(root, cached_baselines=False)
    path = folder_of(root) / "declaration.json"
    values = read_sealed(path)
    del values["cached_baselines"]
    write_sealed(path, values)
    declared = read_declaration(folder_of(root))
    assert declared is not None
    assert declared.cached_baselines == ()
    verdict = ask(root)
    assert verdict.exploratory == ()
    assert verdict.further_baseline == ()


def test_only_ordinary_seeds_under_the_same_key_count(root: Path) -> None:
    arm = make_arm("baseline", SMALL)
    with Fleet(Options(runs_root=root), backend="loop") as fleet:
        fleet.train([Task(arm.recipe, arm.document, seed) for seed in (40, 1_000_000)])
    shutil.copytree(baseline_run(root, 40), baseline_run(root, 41))  # whose key says seed 40
    comparison = prepare(
        SMALL, changes=SLOWER, rules=Rules(looks=(6, 8)), options=Options(runs_root=root), backend="loop"
    )
    assert comparison.declaration.cached_baselines == (*range(6, KNOWN), 40)
    anew = prepare(
        SMALL,
        changes=SLOWER,
        rules=Rules(looks=(6, 8)),
        options=replace(Options(runs_root=root), fresh=True),
        backend="loop",
    )
    assert anew.declaration.cached_baselines == ()


def test_the_page_and_the_command_line_say_it(root: Path, base: Path) -> None:
    from apoint.report import write_comparison_report

    verdict = ask(root)
    page = write_comparison_report(folder_of(root)).read_text()
    further = len(verdict.further_baseline)
    assert f"without {further} cached replicas of the baseline beyond the pairs" in page
    assert "seeds whose baseline was there already" in page
    options = ["--runs-root", str(root), "--looks", "6,8", "--dry-run", "--json", "--engine", "loop"]
    arguments = [str(base), "--change", "optimizer.lr=0.002", *options]
    plan = json.loads(CliRunner().invoke(command, arguments).stdout)
    assert plan["declaration"]["cached_baselines"] == list(range(6, KNOWN))
    plan = json.loads(CliRunner().invoke(command, [*arguments, "--no-cached-baselines"]).stdout)
    assert plan["declaration"]["cached_baselines"] is None
