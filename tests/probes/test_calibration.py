"""Calibration errors against their definitions, scikit-learn, and models whose calibration is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.metrics
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from apoint.probes.calibration import (
    best_temperature,
    binned_error,
    calibration,
    mass_bins,
    reliability,
    smooth_error,
    width_bins,
)
from tests.probes.zoo import case


def slow_smooth_error(f: np.ndarray, y: np.ndarray) -> float:
    """The definition: a reflected kernel is a sum over images; the integral by midpoints."""
    t = (np.arange(1000) + 0.5) / 1000
    images = np.concatenate([2 * shift + sign * f for shift in range(-3, 4) for sign in (1, -1)])
    residuals = np.tile(y - f, 14) / len(f)

    def at(width: float) -> float:
        kernel = np.exp(-(((t[:, None] - images) / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))
        return float(np.abs(kernel @ residuals).mean())

    return float(scipy.optimize.brentq(lambda width: at(width) - width, 1e-2, 1.5))


@pytest.mark.parametrize("seed", range(4))
def test_the_smooth_error_by_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f = rng.beta(2, 1 + seed, size=60)
    y = (rng.random(60) < f**2).astype(float)
    assert smooth_error(f, y) == pytest.approx(slow_smooth_error(f, y), rel=2e-3)
    assert smooth_error(f, y, grid=512) == pytest.approx(slow_smooth_error(f, y), rel=0.02)


def test_the_smooth_error_of_one_confidence() -> None:
    """All say 0.8 and 60 % are right: a single bump of mass 0.2, whatever the width."""
    f, y = np.full(100, 0.8), np.repeat([1.0, 0.0], [60, 40])
    assert smooth_error(f, y) == pytest.approx(0.2, abs=1e-6)
    assert smooth_error(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx(0, abs=1e-9)


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(0)
    f, y = rng.random(20), rng.integers(2, size=20).astype(float)
    counts = rng.integers(0, 4, size=20)
    repeated = smooth_error(np.repeat(f, counts), np.repeat(y, counts))
    assert smooth_error(f, y, counts.astype(float)) == pytest.approx(repeated)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 20))
def test_binned_errors_by_their_definition(seed: int, size: int, num_bins: int) -> None:
    rng = np.random.default_rng(seed)
    f, y = rng.random(size), rng.integers(2, size=size).astype(float)
    slow = 0.0
    for b in range(num_bins):
        inside = [i for i in range(size) if b / num_bins <= f[i] < (b + 1) / num_bins]
        if inside:
            slow += len(inside) / size * abs(y[inside].mean() - f[inside].mean())
    assert binned_error(f, y, width_bins(f, num_bins)) == pytest.approx(slow)
    bins = mass_bins(f, num_bins)
    counts = np.bincount(bins)
    assert counts.max() - counts.min() <= 1
    assert len(counts) == min(num_bins, size)
    assert all(f[bins == b].max() <= f[bins == b + 1].min() for b in range(len(counts) - 1))


def test_confidence_1_is_in_the_last_bin() -> None:
    assert width_bins(np.array([0.0, 1.0]), 10).tolist() == [0, 9]


class Scores(nn.Module):
    """Gives its inputs back as logits, times a factor."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def drawn(size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits, and labels that are drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(size, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def test_a_calibrated_model_shows_what_chance_shows() -> None:
    reading = calibration(Scores(), drawn(3000))
    for name in ("smooth", "equal_width", "equal_mass"):
        entry = reading.details[name]
        assert entry["expected"] > 0
        assert abs(entry["error"] - entry["expected"]) < 4 * entry["expected_deviation"], name
    assert reading.details["temperature"]["temperature"] == pytest.approx(1, abs=0.06)


def test_too_confident() -> None:
    reading = calibration(Scores(3.0), drawn(3000))
    entry = reading.details["smooth"]
    assert reading.value == entry["error"]
    assert entry["error"] > entry["expected"] + 10 * entry["expected_deviation"]
    found = reading.details["temperature"]
    assert found["temperature"] == pytest.approx(3, abs=0.2)
    assert found["log_loss_after"] < found["log_loss_before"]
    assert found["smooth_error_after"] < found["smooth_error_before"] / 4
    assert reading.details["mean_confidence"] > reading.details["accuracy"] + 0.1


def test_the_uncertainty_covers_repetition() -> None:
    """The deviation over fresh data, against the stated one."""
    readings = [calibration(Scores(2.0), drawn(400, seed), num_simulations=30) for seed in range(30)]
    over_data = np.std([reading.value for reading in readings], ddof=1)
    stated = np.mean([reading.uncertainty for reading in readings])
    assert 0.7 < stated / over_data < 1.4


def test_temperature_by_a_general_optimiser() -> None:
    logits, labels = drawn(200)
    found = best_temperature(1.7 * logits, labels)
    slow = scipy.optimize.minimize_scalar(
        lambda t: float(F.cross_entropy(1.7 * logits / t, labels)), bounds=(0.1, 10), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert found == pytest.approx(slow.x, rel=1e-5)


def test_proper_scores_are_those_of_scikit_learn() -> None:
    logits, labels = drawn(300)
    details = calibration(Scores(), (logits, labels)).details
    probabilities = logits.softmax(1).numpy()
    assert details["log_loss"] == pytest.approx(sklearn.metrics.log_loss(labels.numpy(), probabilities))
    expected = sklearn.metrics.brier_score_loss(
        labels.numpy(), probabilities, labels=range(5), scale_by_half=False
    )
    assert details["brier"] == pytest.approx(expected)
    assert details["accuracy"] == pytest.approx(
        sklearn.metrics.accuracy_score(labels.numpy(), probabilities.argmax(1))
    )


def test_the_reliability_curve() -> None:
    rng = np.random.default_rng(0)
    f = rng.random(100)
    y = (rng.random(100) < f).astype(float)
    curve = reliability(f, y, 10)
    first = f <= np.sort(f)[9]
    assert curve["confidence"][0] == pytest.approx(f[first].mean())
    assert curve["accuracy"][0] == pytest.approx(y[first].mean())
    exact = scipy.stats.binomtest(int(y[first].sum()), 10).proportion_ci(0.95, method="exact")
    assert (curve["low"][0], curve["high"][0]) == pytest.approx((exact.low, exact.high))
    assert sum(curve["num_predictions"]) == 100


def test_single_bits() -> None:
    logits = torch.randn(500, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = (torch.rand(500, 1, generator=torch.Generator().manual_seed(1)) < logits.sigmoid()).double()
    reading = calibration(Scores(), (logits, labels), nn.BCEWithLogitsLoss())
    f, y = logits.sigmoid()[:, 0].numpy(), labels[:, 0].numpy()
    assert reading.value == pytest.approx(smooth_error(f, y))
    assert reading.details["log_loss"] == pytest.approx(sklearn.metrics.log_loss(y, f))
    assert reading.details["brier"] == pytest.approx(2 * sklearn.metrics.brier_score_loss(y, f))


def test_positions_that_do_not_count() -> None:
    logits, labels = drawn(50)
    some = labels.clone()
    some[10:] = -100
    reading = calibration(Scores(), (logits[None], some[None]))
    assert reading.details["num_predictions"] == 10
    assert reading.value == pytest.approx(calibration(Scores(), (logits[:10], labels[:10])).value)


def test_classes_on_the_second_axis() -> None:
    logits, labels = drawn(60)
    turned = logits.reshape(4, 15, 5).movedim(-1, 1)
    reading = calibration(Scores(), (turned, labels.reshape(4, 15)))
    assert reading.value == pytest.approx(calibration(Scores(), (logits, labels)).value)


def test_labels_inside_the_inputs() -> None:
    made = case("own-loss")
    assert calibration(made.model, made.batch).details["num_predictions"] == 8


def test_where_it_is_not_defined() -> None:
    made = case("dict-input")
    assert "not probabilities" in calibration(made.model, made.batch, made.loss).how
    assert "no labels" in calibration(Scores(), torch.randn(4, 3)).how
    assert "not finite" in calibration(Scores(math.nan), drawn(5)).how
    assert (
        "do not name a class"
        in calibration(Scores(), (torch.randn(4, 3), torch.rand(4, 3)), F.cross_entropy).how
    )


def test_settings_matter() -> None:
    data = drawn(200)
    base, bins, draws = (
        calibration(Scores(), data, **kw) for kw in ({}, {"num_bins": 5}, {"num_simulations": 7})
    )
    assert base.details["equal_width"]["error"] != bins.details["equal_width"]["error"]
    assert len(bins.details["reliability"]["accuracy"]) == 5
    assert base.uncertainty != draws.uncertainty
    assert base.uncertainty != calibration(Scores(), data, seed=1).uncertainty
    assert any(
        "every prediction is right" in n for n in calibration(Scores(), (torch.eye(3), torch.arange(3))).notes
    )
