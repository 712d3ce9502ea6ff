"""The reader of comparison folders: whole ones, halves, and what it refuses."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from apoint.errors import ApointError, StorageError, UsageError
from apoint.report import ComparisonRecord, comparison_html
from apoint.report.curves import ComparisonRuns
from tests.report.comparisons import CASES, build, read_result, write_result
from tests.report.conftest import Comparison
from tests.sealing import edit


@pytest.fixture
def own(comparison: Comparison, tmp_path: Path) -> Path:
    """A copy of a small comparison with its runs, which a test may change."""
    root = comparison("worse").parent.parent
    shutil.copytree(root, tmp_path / "runs")
    return next((tmp_path / "runs" / "comparisons").iterdir())


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_is_read(comparison: Comparison, name: str) -> None:
    record, case = ComparisonRecord.read(comparison(name)), CASES[name]
    written = read_result(comparison(name))["verdict"]
    verdict = record.verdict
    assert (verdict.outcome, verdict.pairs, verdict.metric) == (case.outcome, case.pairs, case.metric)
    assert list(verdict.interval) == written["interval"]
    assert list(verdict.equivalence_interval) == written["equivalence_interval"]
    assert verdict.adjusted_effect == written["adjusted_effect"]
    last = verdict.looks[-1]
    assert (last.interval, last.equivalence_interval) == (verdict.interval, verdict.equivalence_interval)
    assert last.margin == case.margin
    assert verdict.effect == pytest.approx(sum(pair.difference for pair in record.pairs) / case.pairs)
    assert [look.pairs for look in verdict.looks] == [look["pairs"] for look in written["looks"]]
    assert verdict.failures.candidate == sum(pair.states[1] == "diverged" for pair in record.pairs)
    assert [pair.seed for pair in record.pairs] == list(range(case.pairs))
    assert all((pair.kind == "improved") == (pair.difference > 0) for pair in record.pairs)
    failed = [pair.failed for pair in record.pairs]
    assert [place for place, (_, candidate) in enumerate(failed) if candidate] == list(case.failed)
    assert [place for place, (baseline, _) in enumerate(failed) if baseline] == list(case.failed_baseline)


def test_numbers_that_are_not_finite_come_back(own: Path) -> None:
    result = read_result(own)
    for name in ("interval", "equivalence_interval"):
        result["verdict"]["looks"][0][name] = ["-Infinity", "Infinity"]
    last_look = dict(result["verdict"]["looks"][0], pairs=9, interval=[0.1, 0.2])
    result["verdict"]["looks"].append(last_look)
    write_result(own, result)
    first, *_, last = ComparisonRecord.read(own).verdict.looks
    assert first.interval == first.equivalence_interval == (-math.inf, math.inf)
    assert (first.has_interval, last.has_interval) == (False, True)


def test_missing_runs_are_counted_and_said(own: Path) -> None:
    record = ComparisonRecord.read(own)
    for name in (record.baseline.runs[2], record.candidate.runs[2], record.candidate.runs[5]):
        shutil.rmtree(own.parent.parent / name)
    runs = ComparisonRuns.read(record)
    assert (runs.num_missing, runs.num_named) == (3, 16)
    assert runs.candidate.curves("test_accuracy", "epochs")[5] is None
    assert "Curves of 3 of 16 runs are missing" in comparison_html(own)


def test_without_any_run_the_page_still_tells_the_verdict(own: Path) -> None:
    for folder in own.parent.parent.glob("fashion-*"):
        shutil.rmtree(folder)
    html = comparison_html(own)
    assert "Curves of 16 of 16 runs are missing" in html
    assert "Worse: with the three changes" in html
    assert "No run folder that tells versions could be read" in html


def test_damaged_runs_do_not_hide_the_others(own: Path) -> None:
    root, record = own.parent.parent, ComparisonRecord.read(own)
    (root / record.baseline.runs[0] / "env.json").write_text("{torn")
    (root / record.baseline.runs[1] / "metrics.jsonl").write_text("nonsense\n")
    (root / record.candidate.runs[0] / "env.json").write_text('{"schema_version": 99}')
    runs = ComparisonRuns.read(record)
    assert runs.num_missing == 3
    assert runs.baseline.curves("test_accuracy", "epochs")[1] is None
    assert "Curves of 3 of 16 runs are missing" in comparison_html(own)


def test_a_comparison_before_its_first_look(own: Path) -> None:
    (own / "result.json").unlink()
    html = comparison_html(own)
    assert "No verdict yet" in html
    assert "Declared in advance" in html


def test_an_interrupted_comparison_says_so(own: Path) -> None:
    result = read_result(own) | {"state": "interrupted", "verdict": None, "sentence": ""}
    write_result(own, result)
    html = comparison_html(own)
    assert "was interrupted" in html


def test_a_newer_schema_is_refused_in_a_sentence(own: Path) -> None:
    write_result(own, read_result(own) | {"schema_version": 2})
    with pytest.raises(StorageError, match=r"newer apoint \(schema 2, this one knows 1\); upgrade apoint"):
        ComparisonRecord.read(own)
    (own / "result.json").unlink()
    edit(own / "declaration.json", lambda values: values.update(schema_version=7))
    with pytest.raises(StorageError, match="schema 7"):
        comparison_html(own)


def test_what_is_not_a_comparison_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no comparison folder"):
        ComparisonRecord.read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="neither result"):
        ComparisonRecord.read(tmp_path)
    (tmp_path / "result.json").write_text("{torn")
    with pytest.raises(ApointError, match="not JSON"):
        ComparisonRecord.read(tmp_path)


@pytest.mark.parametrize("name", ["../../../etc", "/etc", "", "a/../../b"])
def test_a_run_name_cannot_lead_out_of_the_runs_root(comparison: Comparison, name: str) -> None:
    record = ComparisonRecord.read(comparison("better"))
    assert record.run_folder(name) is None
    inside = record.run_folder("digits-mlp-3f2a1b-s0")
    assert inside is not None
    assert inside.is_dir()


SPOILED: list[Any] = [None, "text", 3, ["x"]]


@pytest.mark.parametrize("value", SPOILED, ids=repr)
def test_fields_of_a_wrong_kind_never_stop_the_page(
    comparison: Comparison, tmp_path: Path, value: Any
) -> None:
    """Everything but the numbers is spoiled, then the verdict, then the declaration as well."""
    own = tmp_path / "comparisons" / "spoiled"
    shutil.copytree(comparison("worse"), own)  # without its runs, which others look at
    result = read_result(own)
    spoiled = {key: value for key in result if key not in ("schema_version", "verdict", "declaration")}
    write_result(own, result | spoiled)
    comparison_html(own)
    wrong = dict.fromkeys(result["verdict"], value)
    write_result(own, result | {"verdict": wrong})
    comparison_html(own)
    declaration = {key: value for key in result["declaration"] if key != "schema_version"}
    write_result(own, result | {"declaration": declaration, "verdict": wrong})
    comparison_html(own)


def test_a_verdict_alone_is_enough_for_figures(comparison: Comparison) -> None:
    from apoint.report import figures

    whole = read_result(comparison("better"))
    record = ComparisonRecord.from_result({"verdict": whole["verdict"]})
    assert figures.slope(record).count('class="mark pair') == 16
    assert figures.looks(record).startswith("<svg")
    with pytest.raises(StorageError, match="newer"):
        ComparisonRecord.from_result({"schema_version": 5})


def test_building_is_itself_consistent(tmp_path: Path) -> None:
    folder = build(CASES["worse"], tmp_path / "runs")
    result = read_result(folder)
    assert len(result["arms"][0]["runs"]) == CASES["worse"].pairs
    assert all((tmp_path / "runs" / name / "env.json").is_file() for name in result["arms"][1]["runs"])
