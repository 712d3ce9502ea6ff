"""Scores against definitions written out, propriety by search, calibration against other programs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

from apoint.errors import UnknownNameError, UsageError
from apoint.theory import scores


def test_scores_against_their_definitions_and_sklearn() -> None:
    random = np.random.default_rng(0)
    forecasts, happened = random.dirichlet(np.ones(3), 50), random.integers(3, size=50)
    truth = np.eye(3)[happened]
    charged = {
        name: np.take_along_axis(scores.score(name, forecasts), happened[:, None], 1)
        for name in scores.SCORES
    }
    assert charged["log"].mean() == pytest.approx(log_loss(happened, forecasts))
    assert charged["brier"][:, 0] == pytest.approx(((forecasts - truth) ** 2).sum(1))
    assert charged["absolute"][:, 0] == pytest.approx(np.abs(forecasts - truth).sum(1))
    inner = (forecasts * truth).sum(1) / np.sqrt((forecasts**2).sum(1))
    assert charged["spherical"][:, 0] == pytest.approx(-inner)
    binary = np.stack([1 - forecasts[:, 0], forecasts[:, 0]], 1)
    two = np.take_along_axis(scores.score("brier", binary), (happened == 0).astype(int)[:, None], 1).mean()
    assert two / 2 == pytest.approx(brier_score_loss(happened == 0, forecasts[:, 0]))


@pytest.mark.parametrize("name", ["log", "brier", "spherical"])
@pytest.mark.parametrize("truth", [(0.3, 0.7), (0.2, 0.3, 0.5), (0.0, 0.4, 0.6)])
def test_proper_scores_ask_for_the_truth(name: str, truth: tuple[float, ...]) -> None:
    p = np.array(truth)
    assert scores.best_forecast(name, p, steps=20) == pytest.approx(p)
    assert scores.propriety_gap(name, p, steps=20) == 0


def test_the_absolute_score_does_not() -> None:
    p = np.array([0.2, 0.3, 0.5])
    assert scores.best_forecast("absolute", p, steps=10) == pytest.approx([0, 0, 1])
    # Honest: Σ p·2(1 − p) = 2(1 − 0.38); all on the likeliest: 2(1 − 0.5).
    assert scores.propriety_gap("absolute", p) == pytest.approx(2 * (0.5 - 0.38))
    assert scores.simplex(3, 4).shape == (15, 3)
    assert scores.simplex(2, 4)[:, 0] == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def predictions(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    v = random.random(count)
    return v, np.clip(v + random.normal(0, 0.3, count), 0, 1), random.dirichlet(np.ones(count))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_both_programs_against_general_ones(seed: int, count: int) -> None:
    """All pairs of Lipschitz constraints, solved by another solver."""
    v, y, mass = predictions(seed, count)
    pairs = list(itertools.permutations(range(count), 2))
    rows = np.array([np.eye(count)[a] - np.eye(count)[b] for a, b in pairs]).reshape(-1, count)
    room = np.array([abs(v[a] - v[b]) for a, b in pairs])
    program = optimize.linprog(
        -mass * (y - v), A_ub=rows if pairs else None, b_ub=room if pairs else None, bounds=(-1, 1)
    )
    error = scores.smooth_calibration_error(v, y, mass)
    assert error == pytest.approx(-program.fun, abs=1e-9)
    constraints = [{"type": "ineq", "fun": lambda e: room - rows @ e}] if pairs else []
    found = optimize.minimize(
        lambda e: (mass * (y - v - e) ** 2).sum(),
        np.zeros(count),
        constraints=constraints,
        bounds=[(-a, 1 - a) for a in v],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    gap = scores.post_processing_gap(v, y, mass)
    assert gap == pytest.approx((mass * (y - v) ** 2).sum() - found.fun, abs=1e-6)
    assert error**2 - 1e-9 <= gap <= 2 * error + 1e-9


def test_post_processing_keeps_its_constraints_and_isotonic_regression_gains_more() -> None:
    v, y, mass = predictions(3, 60)
    places, changed, gap = scores.post_processing(v, y, mass)
    assert places == pytest.approx(np.sort(v))
    assert (np.abs(np.diff(changed - places)) <= np.diff(places) + 1e-9).all()
    assert ((changed >= -1e-9) & (changed <= 1 + 1e-9)).all()
    order = np.argsort(v)
    free = IsotonicRegression().fit(v[order], y[order], mass[order]).predict(v[order])
    monotone = (mass * (y - v) ** 2).sum() - (mass[order] * (y[order] - free) ** 2).sum()
    assert 0 < gap <= monotone + 1e-9  # κ with κ − v 1-Lipschitz is monotone


def test_calibrated_predictions_have_nothing_to_gain() -> None:
    v = np.linspace(0, 1, 11)
    assert scores.smooth_calibration_error(v, v) == pytest.approx(0, abs=1e-12)
    assert scores.post_processing_gap(v, v) == pytest.approx(0, abs=1e-12)
    # Ties are put together: one half is right on the mean of 0 and 1.
    assert scores.smooth_calibration_error(np.full(2, 0.5), np.array([0.0, 1.0])) == 0
    weighted = scores.smooth_calibration_error(np.full(2, 0.5), np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    assert weighted == pytest.approx(0.25)
    assert scores.post_processing_gap(
        np.full(2, 0.5), np.array([0.0, 1.0]), np.array([1.0, 3.0])
    ) == pytest.approx(0.25**2)


def test_refusals() -> None:
    with pytest.raises(UnknownNameError, match="brier"):
        scores.score("brie", np.array([0.5, 0.5]))
    with pytest.raises(
        UsageError, match=r"probabilities must be at least 0 and sum to 1 .* sums from 1.2 to 1.2"
    ):
        scores.score("log", np.array([0.6, 0.6]))
    with pytest.raises(UsageError, match=r"2 or 3 classes, got the shape \(4,\)"):
        scores.best_forecast("log", np.full(4, 0.25))
    with pytest.raises(UsageError, match=r"predictions must be between 0 and 1, got 0\.5 to 1\.5"):
        scores.smooth_calibration_error(np.array([0.5, 1.5]), np.array([0.0, 1.0]))
    with pytest.raises(UsageError, match=r"lists of one length, got \(2,\), \(1,\) and \(2,\)"):
        scores.smooth_calibration_error(np.array([0.5, 0.5]), np.array([0.0]))
    with pytest.raises(UsageError, match="weights must be finite, at least 0, and not all 0"):
        scores.post_processing_gap(np.array([0.5]), np.array([0.0]), np.array([0.0]))
