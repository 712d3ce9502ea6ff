"""Scores of probability forecasts: which are proper, and what it means when a loss could still be lowered.

A score S(q, y) charges a forecast q (a row of class probabilities) when the class y occurs; lower is
better. It is proper if a forecaster gains nothing by forecasting anything but their belief: E_{y~p} S(q, y)
is smallest at q = p, and strictly proper if it is smallest only there.

Reference: Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation;
Błasiok, Gopalan, Hu and Nakkiran (2023), When does optimizing a proper loss yield calibration?
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, sparse

from apoint.errors import UnknownNameError, UsageError

SCORES = ("log", "brier", "spherical", "absolute")


def score(name: str, forecast: np.ndarray) -> np.ndarray:
    """What a forecast is charged for each class that may occur, [..., classes].

    - `log`: −ln q_y;
    - `brier`: Σ_c (q_c − 1[c = y])²;
    - `spherical`: −q_y/‖q‖;
    - `absolute`: Σ_c |q_c − 1[c = y]|, which is not proper.

    Args:
        name: One of these.
        forecast: q, the last axis the classes; positive numbers that sum to 1 there.
    """
    q = _distributions("score", forecast)
    if name == "log":
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(q))
    if name == "brier":
        return np.asarray((q**2).sum(-1, keepdims=True) - 2 * q + 1)
    if name == "spherical":
        return np.asarray(-q / np.linalg.norm(q, axis=-1, keepdims=True))
    if name == "absolute":
        return np.asarray(2 * (1 - q))
    raise UnknownNameError("score", name, list(SCORES))


def expected(name: str, forecast: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """E_{y~p} S(q, y) = Σ_y p_y·S(q, y), of each forecast.

    Args:
        name: Name of the score S.
        forecast: q, [..., classes].
        truth: p, [classes].
    """
    p = _distributions("expected", truth)
    charges = score(name, forecast)
    return np.asarray(np.where(p > 0, p * np.where(p > 0, charges, 0.0), 0.0).sum(-1))


def best_forecast(name: str, truth: np.ndarray, steps: int = 60) -> np.ndarray:
    """The forecast with the lowest expected score among those whose probabilities are multiples of 1/steps.

    Args:
        name: Name of the score.
        truth: p, of two or three classes.
        steps: How fine the grid is.
    """
    p = _distributions("best_forecast", truth)
    if p.shape not in ((2,), (3,)):
        raise UsageError(f"best_forecast: the truth must have 2 or 3 classes, got the shape {p.shape}")
    grid = simplex(len(p), steps)
    return np.asarray(grid[int(np.argmin(expected(name, grid, p)))])


def propriety_gap(name: str, truth: np.ndarray, steps: int = 60) -> float:
    """The largest gain in expected score from not forecasting the truth; 0 for proper scores.

    Args:
        name: Name of the score.
        truth: p, of two or three classes.
        steps: How fine the grid of other forecasts is.
    """
    honest = float(expected(name, np.asarray(truth), truth))
    return max(honest - float(expected(name, best_forecast(name, truth, steps), truth)), 0.0)


def simplex(classes: int, steps: int) -> np.ndarray:
    """All rows of `classes` (2 or 3) multiples of 1/steps that sum to 1."""
    if classes == 2:
        first = np.arange(steps + 1)
        return np.asarray(np.stack([first, steps - first], 1) / steps)
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(steps + 1), np.arange(steps + 1)))
    rows = np.stack([a, b, steps - a - b], 1)
    return np.asarray(rows[rows[:, 2] >= 0] / steps)


# -- calibration ---------------------------------------------------------------------------------------------


def smooth_calibration_error(
    predictions: np.ndarray, outcomes: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """smCE: the largest E[(y − v)·η(v)] over 1-Lipschitz η from [0, 1] to [−1, 1], by a linear program.

    Between neighbouring predictions η may change by as much as they differ; so a chain of inequalities over
    the sorted distinct predictions expresses the whole Lipschitz condition. 0 for calibrated predictions.

    Args:
        predictions: v, in [0, 1].
        outcomes: y: 0 or 1, or the probability of a 1 given the prediction.
        weights: The probability, or count, of each; the same for all by default.
    """
    places, targets, masses = _atoms(predictions, outcomes, weights)
    residuals = masses * (targets - places)
    count = len(places)
    if count == 1:
        return abs(float(residuals[0]))
    steps = sparse.diags([-np.ones(count - 1), np.ones(count - 1)], [0, 1], (count - 1, count), "csr")
    gaps = np.diff(places)
    found = optimize.linprog(
        -residuals,
        A_ub=sparse.vstack([steps, -steps]),
        b_ub=np.concatenate([gaps, gaps]),
        bounds=(-1, 1),
        method="highs",
    )
    return max(-float(found.fun), 0.0)


def post_processing(
    predictions: np.ndarray, outcomes: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """The best κ with κ(v) − v 1-Lipschitz for the squared loss, and how much it gains.

    pGap = E(y − v)² − min_κ E(y − κ(v))². κ starts anywhere and rises between neighbours v < v' by 0 to
    2(v' − v), which is least squares with box constraints; the values end up within [0, 1]
    automatically, since clipping to it keeps the constraints and lowers the loss.

    Args:
        predictions: v, in [0, 1].
        outcomes: y: 0 or 1, or the probability of a 1 given the prediction.
        weights: The probability, or count, of each; the same for all by default.

    Returns:
        The sorted distinct predictions, κ of each, and pGap.
    """
    places, targets, masses = _atoms(predictions, outcomes, weights)
    count, roots = len(places), np.sqrt(masses)
    design = np.tril(np.ones((count, count)))
    high = np.concatenate([[1.0], 2 * np.diff(places)])
    found = optimize.lsq_linear(
        design * roots[:, None], targets * roots, (np.zeros(count), high), "bvls", tol=1e-14
    )
    fitted = design @ found.x
    gain = float((masses * ((targets - places) ** 2 - (targets - fitted) ** 2)).sum())
    return places, fitted, gain


def post_processing_gap(
    predictions: np.ndarray, outcomes: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """pGap of the squared loss: what the best Lipschitz change of the predictions gains.

    smCE² ≤ pGap ≤ 2·smCE. See `post_processing` for the arguments.
    """
    return post_processing(predictions, outcomes, weights)[2]


def _atoms(
    predictions: np.ndarray, outcomes: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct predictions in order, the mean outcome at each, and its probability."""
    v, y = np.asarray(predictions, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    mass = np.ones(v.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if v.ndim != 1 or not len(v) or v.shape != y.shape or v.shape != mass.shape:
        raise UsageError(
            f"predictions, outcomes and weights must be lists of one length, got {v.shape}, {y.shape} and "
            f"{mass.shape}"
        )
    for name, values in (("predictions", v), ("outcomes", y)):
        if not ((values >= 0) & (values <= 1)).all():
            raise UsageError(f"{name} must be between 0 and 1, got {values.min():g} to {values.max():g}")
    if not (np.isfinite(mass).all() and (mass >= 0).all() and mass.sum() > 0):
        raise UsageError("weights must be finite, at least 0, and not all 0")
    places, index = np.unique(v[mass > 0], return_inverse=True)
    total = np.bincount(index, mass[mass > 0])
    means = np.bincount(index, (mass * y)[mass > 0]) / total
    return places, means, total / total.sum()


def _distributions(where: str, values: np.ndarray) -> np.ndarray:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim == 0 or not (rows >= 0).all() or not np.allclose(rows.sum(-1), 1, atol=1e-9):
        raise UsageError(
            f"{where}: probabilities must be at least 0 and sum to 1 over the last axis, got a smallest of "
            f"{rows.min():g} and sums from {rows.sum(-1).min():g} to {rows.sum(-1).max():g}"
        )
    return rows
