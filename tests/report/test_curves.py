"""Bands, differences and thinning, held to numpy and to laws."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from apoint.report import ComparisonRecord
from apoint.report.curves import (
    FEWEST_FOR_BAND,
    ComparisonRuns,
    Curve,
    band,
    late_part,
    paired_differences,
)
from apoint.report.panels import Panel
from apoint.report.thinning import BUCKETS, THIN_ABOVE, thin
from apoint.store import Run
from tests.report.comparisons import CASES, EPOCHS
from tests.report.conftest import Comparison

finite_values = st.floats(-1e6, 1e6)


@settings(deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 8)), elements=finite_values))
def test_a_band_is_the_quantiles_of_its_columns(values_SX: np.ndarray) -> None:
    x = np.arange(values_SX.shape[1], dtype=float)
    found = band([Curve(seed, x, row) for seed, row in enumerate(values_SX)])
    assert found is not None
    np.testing.assert_allclose(found.median, np.median(values_SX, axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.low, np.quantile(values_SX, 0.1, axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.high, np.quantile(values_SX, 0.9, axis=0), rtol=1e-12, atol=1e-9)
    assert found.num_used == found.num_logged == values_SX.size
    assert found.has_quantiles == (len(values_SX) >= FEWEST_FOR_BAND)


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    x = np.array([1.0, 2.0, 3.0])
    curves = [Curve(0, x, np.array([1.0, np.nan, np.inf])), Curve(1, x, np.array([3.0, 5.0, np.nan])), None]
    found = band(curves)
    assert found is not None
    assert found.x.tolist() == [1.0, 2.0]  # nothing finite at 3
    assert found.median.tolist() == [2.0, 5.0]
    assert found.seeds == (2, 1)
    assert (found.num_curves, found.num_logged, found.num_used) == (2, 6, 3)


def test_places_that_few_runs_logged_do_not_shake_the_band() -> None:
    x = np.array([1.0, 2.0])
    curves = [Curve(seed, x, np.array([1.0, 2.0])) for seed in range(4)]
    odd = Curve(9, np.array([1.0, 1.5, 2.0]), np.array([1.0, 99.0, 2.0]))
    found = band([*curves, odd])
    assert found is not None
    assert found.x.tolist() == [1.0, 2.0]
    assert (found.num_used, found.num_logged) == (10, 11)


def test_nothing_gives_no_band() -> None:
    assert band([]) is None
    assert band([None]) is None
    assert band([Curve(0, np.array([1.0]), np.array([np.nan]))]) is None


def test_curves_are_those_of_the_run_folders(comparison: Comparison) -> None:
    record = ComparisonRecord.read(comparison("better"))
    runs = ComparisonRuns.read(record)
    folder = record.run_folder(record.candidate.runs[3])
    assert folder is not None
    steps, values = Run(folder).metrics.series("test_accuracy")
    curve = runs.candidate.curves("test_accuracy", "epochs")[3]
    assert curve is not None
    assert (curve.seed, curve.values.tolist()) == (3, values)
    assert curve.x.tolist() == list(range(1, EPOCHS + 1))
    in_steps = runs.candidate.curves("test_accuracy", "steps")[3]
    assert in_steps is not None
    assert in_steps.x.tolist() == steps


@pytest.mark.parametrize("name", ["better", "lower"])
def test_differences_end_at_the_verdicts_pairs(comparison: Comparison, name: str) -> None:
    """The curve of differences and the verdict are two ways to the same numbers, in either direction."""
    record = ComparisonRecord.read(comparison(name))
    verdict = record.verdict
    curves = paired_differences(ComparisonRuns.read(record), verdict.metric, verdict.higher_is_better)
    ends = [curve.values[-1] for curve in curves if curve is not None]
    np.testing.assert_allclose(ends, [pair.difference for pair in record.pairs], rtol=0, atol=1e-12)
    assert np.mean(ends) == pytest.approx(verdict.effect, abs=1e-12)
    assert verdict.effect > 0


def test_a_difference_needs_both_arms_at_the_same_place() -> None:
    from apoint.report.curves import _difference

    first = Curve(0, np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, np.inf]))
    second = Curve(0, np.array([2.0, 3.0, 4.0]), np.array([5.0, np.inf, 7.0]))
    found = _difference(first, second, -1.0)
    assert found is not None
    assert found.x.tolist() == [2.0, 3.0]
    assert found.values[0] == -3.0
    assert np.isnan(found.values[1])
    assert _difference(first, None, 1.0) is None
    assert _difference(first, Curve(0, np.array([9.0]), np.array([1.0])), 1.0) is None


def test_the_second_half() -> None:
    curve = Curve(0, np.arange(1.0, 11.0), np.arange(10.0))
    late = late_part(curve)
    assert late is not None
    assert late.x.tolist() == [5, 6, 7, 8, 9, 10]
    assert late_part(None) is None
    assert late_part(Curve(0, np.array([4.0]), np.array([1.0]))) is None


def test_an_arms_statistics_do_not_depend_on_the_other(comparison: Comparison, tmp_path: Path) -> None:
    """The law behind a complaint about trackers: showing another group must not change a group's mean."""
    root = comparison("better").parent.parent
    shutil.copytree(root, tmp_path / "runs")
    folder = next((tmp_path / "runs" / "comparisons").iterdir())
    record = ComparisonRecord.read(folder)
    before = Panel.of_metric(ComparisonRuns.read(record), "test_accuracy", True)
    for name in record.candidate.runs[3:]:
        shutil.rmtree(tmp_path / "runs" / name)
    after = Panel.of_metric(ComparisonRuns.read(record), "test_accuracy", True)
    assert before is not None
    assert after is not None
    for part in ("x", "median", "low", "high"):
        np.testing.assert_array_equal(
            getattr(before.bands["baseline"], part), getattr(after.bands["baseline"], part)
        )
    assert after.bands["candidate"].num_curves == 3


@settings(max_examples=20, deadline=None)
@given(st.integers(THIN_ABOVE + 1, 20_000), st.integers(0, 2**32 - 1))
def test_thinning_keeps_the_extremes_of_every_bucket(length: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    x, line = np.arange(length, dtype=float), draw.standard_cauchy(length)
    thin_x, (thinned,) = thin(x, line)
    assert len(thinned) == len(thin_x) == 2 * BUCKETS
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert np.all(np.diff(thin_x) >= 0)
    assert set(thinned) <= set(line)
    for number, part in enumerate(np.array_split(line, BUCKETS)):
        pair = thinned[2 * number : 2 * number + 2]
        assert (pair.min(), pair.max()) == (part.min(), part.max())


def test_short_lines_are_not_thinned_and_gaps_stay_gaps() -> None:
    x = np.arange(THIN_ABOVE, dtype=float)
    same_x, (same,) = thin(x, x)
    assert same is x
    assert same_x is x
    long = np.arange(THIN_ABOVE * 2, dtype=float)
    values = long.copy()
    values[1000:2000] = np.nan
    _, (thinned,) = thin(long, values)
    assert np.isnan(thinned).any()
    assert np.nanmax(thinned) == values[-1]


def test_a_line_that_runs_away_is_cut_off_and_counted() -> None:
    x = np.arange(1.0, 6.0)
    calm = [Curve(seed, x, np.full(5, 1.0 + seed / 10)) for seed in range(5)]
    wild = Curve(5, x, np.array([1.0, 1.0, 1.0, 1.0, 1e9]))
    panel = Panel._of_curves("own", True, "epochs", {"candidate": [*calm, wild]})
    assert panel is not None
    assert panel.num_outside == 2  # the line's last point, and the band's upper edge there
    assert panel.limits[0] <= 1.0
    assert 1.5 < panel.limits[1] < 100
    tame = Panel._of_curves("train_loss", False, "epochs", {"candidate": [*calm]})
    assert tame is not None
    assert tame.num_outside == 0


def test_only_what_should_fall_gets_a_logarithmic_axis() -> None:
    x = np.arange(1.0, 4.0)
    curves = {"candidate": [Curve(0, x, np.array([2.0, 0.2, 0.02]))]}
    for higher, logarithmic in ((False, True), (True, False)):
        panel = Panel._of_curves("m", higher, "steps", dict(curves))
        assert panel is not None
        assert panel.logarithmic == logarithmic
        assert panel.limits[0] < 0.02 < 2.0 < panel.limits[1]


def test_a_budget_in_steps_makes_the_axis_steps(comparison: Comparison) -> None:
    from dataclasses import replace

    record = ComparisonRecord.read(comparison("better"))
    assert ComparisonRuns.read(record).unit == "epochs"
    declared = {**record.declaration, "budget": {"steps": 1200}}
    assert ComparisonRuns.read(replace(record, declaration=declared)).unit == "steps"
    assert CASES["better"].pairs == 16
