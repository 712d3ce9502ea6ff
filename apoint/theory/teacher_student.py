"""A student that learns a teacher with shared patches: its loss, its descent and its spurious minimum.

The network is f(Z) = Σ_j a_j max(w·Z_j, 0) with w = v/|v|, over k patches Z_j that do not overlap, Gaussian
with unit covariance. The teacher has w* and a*. The loss is ½ E[(f − f*)²], an expectation in closed form; φ
is the angle between v and w*. Arrays may have leading dimensions, one entry for each of many students.

Reference: Du, Lee, Tian, Póczos and Singh (2018), Gradient descent learns one-hidden-layer CNN: don't be
afraid of spurious local minima.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from apoint.errors import UsageError


def overlap(angle: np.ndarray | float) -> np.ndarray:
    """g(φ) = (π − φ) cos φ + sin φ: 2π times E[max(u·z, 0) max(w·z, 0)] for unit vectors at an angle φ."""
    angle = np.asarray(angle, float)
    return np.asarray((np.pi - angle) * np.cos(angle) + np.sin(angle))


def angle_between(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The angle between vectors along the last axis, accurate near 0 and π too."""
    v, w = np.asarray(v, float), np.asarray(w, float)
    unit = v / np.linalg.norm(v, axis=-1, keepdims=True)
    goal = w / np.linalg.norm(w, axis=-1, keepdims=True)
    apart = np.linalg.norm(unit - goal, axis=-1), np.linalg.norm(unit + goal, axis=-1)
    return np.asarray(2 * np.arctan2(*apart))


def population_loss(v: np.ndarray, a: np.ndarray, w_star: np.ndarray, a_star: np.ndarray) -> np.ndarray:
    """½ E[(f − f*)²], in closed form.

    [aᵀMa + |w*|² a*ᵀMa* − 2|w*| aᵀ(11ᵀ + (g(φ) − 1)I)a*] / 4π with M = 11ᵀ + (π − 1)I.

    Args:
        v: The student's filter, of any length but 0, [..., p].
        a: Its output weights, [..., k].
        w_star: w*, [p].
        a_star: a*, [k].
    """
    v, a, w_star, a_star = _checked(v, a, w_star, a_star)
    size = np.linalg.norm(w_star)
    g = overlap(angle_between(v, w_star))
    own = a.sum(-1) ** 2 + (np.pi - 1) * (a**2).sum(-1)
    teacher = size**2 * (a_star.sum() ** 2 + (np.pi - 1) * (a_star**2).sum())
    both = size * (a.sum(-1) * a_star.sum() + (g - 1) * (a @ a_star))
    return np.asarray((own + teacher - 2 * both) / (4 * np.pi))


def population_gradient(
    v: np.ndarray, a: np.ndarray, w_star: np.ndarray, a_star: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of `population_loss` with respect to v and a.

    ∂_v = −aᵀa* (π − φ)/(2π|v|) · (I − vvᵀ/|v|²)w* and
    ∂_a = [(11ᵀ + (π − 1)I)a − |w*|(11ᵀ + (g(φ) − 1)I)a*] / 2π.

    Args:
        v: The student's filter, of any length but 0, [..., p].
        a: Its output weights, [..., k].
        w_star: w*, [p].
        a_star: a*, [k].
    """
    v, a, w_star, a_star = _checked(v, a, w_star, a_star)
    angle = angle_between(v, w_star)
    length = np.linalg.norm(v, axis=-1, keepdims=True)
    unit = v / length
    across = w_star - unit * (unit @ w_star)[..., None]
    by_v = -((a @ a_star) * (np.pi - angle))[..., None] * across / (2 * np.pi * length)
    wanted = a_star.sum() + (overlap(angle)[..., None] - 1) * a_star
    by_a = (a.sum(-1, keepdims=True) + (np.pi - 1) * a - np.linalg.norm(w_star) * wanted) / (2 * np.pi)
    return np.asarray(by_v), np.asarray(by_a)


def spurious_minimum(w_star: np.ndarray, a_star: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stationary point that is not a solution: v = −w*, a = |w*|(11ᵀ + (π − 1)I)⁻¹(11ᵀ − I)a*.

    It is a local minimum if (1ᵀa*)²/|a*|² is below `spurious_threshold`; above it, a saddle.

    Args:
        w_star: w*, [p].
        a_star: a*, [k].
    """
    w_star, a_star = np.asarray(w_star, float), np.asarray(a_star, float)
    _checked(w_star, a_star, w_star, a_star)
    k = len(a_star)
    matrix = np.ones((k, k)) + (np.pi - 1) * np.eye(k)
    a = np.linalg.norm(w_star) * np.linalg.solve(matrix, (np.ones((k, k)) - np.eye(k)) @ a_star)
    return -w_star, a


def spurious_threshold(patches: int) -> float:
    """The value of (1ᵀa*)²/|a*|² below which the spurious minimum is a minimum: (k + π − 1)/π.

    There aᵀa* = |w*|(π(1ᵀa*)²/(k + π − 1) − |a*|²)/(π − 1), and the angle is pulled to π while this is
    negative.

    Args:
        patches: k, at least 1.
    """
    if isinstance(patches, bool) or int(patches) != patches or patches < 1:
        raise UsageError(f"patches must be a whole number from 1 on, got {patches}")
    return (patches + math.pi - 1) / math.pi


def teacher_weights(patches: int, ratio: float) -> np.ndarray:
    """Unit output weights a* with a given (1ᵀa*)²/|a*|², [k].

    Args:
        patches: k, at least 2.
        ratio: From 0 to k.
    """
    spurious_threshold(patches)
    if patches < 2 or not 0 <= ratio <= patches:
        raise UsageError(
            f"teacher_weights: a ratio must lie between 0 and k ≥ 2, got {ratio:g} for k = {patches}"
        )
    along = np.full(patches, patches**-0.5)
    across = np.zeros(patches)
    across[:2] = 0.5**0.5, -(0.5**0.5)
    share = ratio / patches
    return np.asarray(share**0.5 * along + (1 - share) ** 0.5 * across)


@dataclass(frozen=True)
class Descent:
    """Where runs of gradient descent ended.

    Attributes:
        angle: φ between the filter and w*, [...].
        total: s = 1ᵀa, [...].
        product: q = aᵀa*, [...]; its sign tells whether the angle falls or rises.
        unrest: How far s and q are from their resting values at this angle, in units of q, [...].
        steps: Number of steps of the longest run.
    """

    angle: np.ndarray
    total: np.ndarray
    product: np.ndarray
    unrest: np.ndarray
    steps: int = 0

    @property
    def settled(self) -> np.ndarray:
        """Whether the output weights have caught up with the angle, so that the sign of q will not change."""
        return np.asarray(self.unrest <= 0.25 * np.abs(self.product))

    @property
    def recovered(self) -> np.ndarray:
        """Whether each found the teacher: an angle below 0.1 and falling."""
        return np.asarray(self.settled & (self.angle < 0.1) & (self.product > 0))

    @property
    def trapped(self) -> np.ndarray:
        """Whether each is on its way to the spurious minimum: near φ = π, and pulled further."""
        return np.asarray(self.settled & (self.angle > math.pi - 0.3) & (self.product < 0))

    @property
    def decided(self) -> np.ndarray:
        """Whether each is either recovered or trapped."""
        return np.asarray(self.recovered | self.trapped)


def descend(
    cosine: np.ndarray,
    total: np.ndarray | float,
    product: np.ndarray | float,
    patches: np.ndarray | int,
    ratio: np.ndarray | float,
    rate: np.ndarray | float = 0.05,
    steps: int = 200_000,
) -> Descent:
    """Gradient descent on the population loss of many students at once, for |w*| = |a*| = 1 and |v₀| = 1.

    Only four numbers matter, not all k + p parameters, and descent is exactly closed in them: v along w* and
    across it, s = 1ᵀa and q = aᵀa*. So a step costs the same for any k and p. Each student stops within 100
    steps of being `decided`, or after `steps`.

    Args:
        cosine: Cosine of the angle between v₀ and w*, [...].
        total: 1ᵀa₀, [...].
        product: a₀ᵀa*, [...].
        patches: k of each.
        ratio: (1ᵀa*)² of each; a* has 1ᵀa* ≥ 0.
        rate: Step size, below 4π/(k + π − 1).
        steps: Maximum number of steps.
    """
    given = np.broadcast_arrays(
        *[np.asarray(x, float) for x in (cosine, total, product, patches, ratio, rate)]
    )
    shape = given[0].shape
    along, s, q, k, ratios, rates = (one.ravel() for one in given)
    if not bool(((rates > 0) & (rates < 4 * np.pi / (k + np.pi - 1))).all()):
        raise UsageError(
            f"descend: a rate must lie between 0 and 4π/(k + π − 1), got {float(rates.max()):g} for k = "
            f"{float(k.max()):g}"
        )
    state = np.stack([along, np.sqrt(np.maximum(1 - along**2, 0)), s, q])
    constants = np.stack([k, np.sqrt(ratios), rates / (2 * np.pi)])
    going, done = np.arange(len(k)), 0
    while done < steps and len(going):
        now, block = state[:, going], min(100, steps - done)
        for _ in range(block):
            now = _step(now, constants[:, going])
        state[:, going], done = now, done + block
        going = going[~_ended(now, constants[:, going]).decided]
    end = _ended(state, constants)
    angle, total, product, unrest = (
        np.asarray(one).reshape(shape) for one in (end.angle, end.total, end.product, end.unrest)
    )
    return Descent(angle, total, product, unrest, done)


def _step(state: np.ndarray, constants: np.ndarray) -> np.ndarray:
    along, across, s, q = state
    k, goal, step = constants
    angle = np.arctan2(across, along)
    more = overlap(angle) - 1
    pull = step * q * (np.pi - angle) * across / (along**2 + across**2) ** 1.5
    s_change = (k + np.pi - 1) * s - (k + more) * goal
    q_change = goal * s + (np.pi - 1) * q - goal**2 - more
    return np.stack([along + pull * across, across - pull * along, s - step * s_change, q - step * q_change])


def _ended(state: np.ndarray, constants: np.ndarray) -> Descent:
    along, across, s, q = state
    k, goal, _ = constants
    angle = np.abs(np.arctan2(across, along))
    more = overlap(angle) - 1
    rest_s = (k + more) * goal / (k + np.pi - 1)
    rest_q = (goal**2 + more - goal * rest_s) / (np.pi - 1)
    return Descent(angle, s, q, goal * np.abs(s - rest_s) + np.abs(q - rest_q))


def _checked(
    v: np.ndarray, a: np.ndarray, w_star: np.ndarray, a_star: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    v, a, w_star, a_star = (np.asarray(one, float) for one in (v, a, w_star, a_star))
    if v.shape[-1:] != w_star.shape or a.shape[-1:] != a_star.shape:
        raise UsageError(
            f"student and teacher must have filters of one length and output weights of one number, got "
            f"{v.shape} and {w_star.shape}, {a.shape} and {a_star.shape}"
        )
    if not (np.linalg.norm(v, axis=-1) > 0).all() or not np.linalg.norm(w_star) > 0:
        raise UsageError("a filter must not be zero, as only its direction counts; got one that is")
    return v, a, w_star, a_star
