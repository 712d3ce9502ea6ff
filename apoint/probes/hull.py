"""Interpolation or extrapolation: which new points lie in the convex hull of known ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from apoint.errors import UnknownNameError, UsageError
from apoint.probes.batch import as_batch
from apoint.probes.concentration import Matrix, points_in, some
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import ModelFailedError, Subject
from apoint.registry import register
from apoint.settings import Count, WholeNumber
from apoint.theory.hull import inside

_TOLERANCE = 1e-7  # the solver's tolerance, for points scaled to standard deviations near 1


@register("probe", "convex-hull", course="E5", passes=1)
def convex_hull(
    model: nn.Module,
    batch: Any,
    test: Any = None,
    *,
    space: str = "inputs",
    num_test: Count = 64,
    seed: WholeNumber = 0,
) -> Reading:
    """The share of test points inside the convex hull of the batch's points, in a chosen space.

    Shows whether a model interpolates: in the space of raw inputs hardly any new point is inside, in that of
    a late layer perhaps.

    A test point t is inside if there are weights λ_i ≥ 0 with Σλ_i = 1 and Σλ_i x_i = t for the points x_i of
    the batch. A linear program decides this, after points outside the box or the plane of the batch are ruled
    out. The uncertainty is binomial; the details hold the exact interval at 95 % as `interval`, the number of
    points and the dimension of the plane that they span. With n points in more than n − 2 dimensions, no new
    point is inside.

    The model is in eval mode.

    Args:
        space: `inputs`; `features`, the input of the last layer; or the name of a module or operation, for
            its output.
        num_test: The maximum number of test points, drawn at random; each is a linear program.
        seed: Seed of that draw.

    Reference: Balestriero, Pesenti and LeCun (2021), Learning in high dimension always amounts to
    extrapolation.
    """
    if test is None:
        return undefined("convex-hull", "there is no test batch")
    subject = Subject(model, batch)
    try:
        known = points_in(subject, subject.batch, space, seed)
        new = some(points_in(subject, as_batch(model, test), space, seed), num_test, seed)
    except (UnknownNameError, ModelFailedError):
        raise
    except UsageError as error:
        return undefined("convex-hull", str(error))
    if known.shape[1] != new.shape[1]:
        why = (
            f"points of the batch have {known.shape[1]} numbers in {space}, those of the test {new.shape[1]}"
        )
        return undefined("convex-hull", why)
    if not (np.isfinite(known).all() and np.isfinite(new).all()):
        return undefined("convex-hull", f"the points in {space} are not finite")
    found, rank = in_hull(known, new)
    count, total = int(found.sum()), len(found)
    return Reading(
        "convex-hull",
        count / total,
        f"estimated from {total} test points and the hull of {len(known)} points in {space}",
        "estimated",
        uncertainty=binomial_error(count, total),
        details={
            "num_points": len(known),
            "num_test": total,
            "dimension": known.shape[1],
            "spanned_dimension": rank,
            "interval": binomial_interval(count, total),
        },
    )


def in_hull(known: Matrix, new: Matrix) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], int]:
    """Which rows of `new` lie in the convex hull of the rows of `known`, and the dimension of that hull."""
    centre = known.mean(0)
    _, sizes, directions = np.linalg.svd(known - centre, full_matrices=False)
    rank = int((sizes > _TOLERANCE * max(float(sizes.max(initial=0)), 1e-300)).sum())
    directions = directions[:rank]
    scale = np.maximum(sizes[:rank], 1e-300) / np.sqrt(len(known))
    corners, candidates = (known - centre) @ directions.T / scale, (new - centre) @ directions.T / scale
    rest = (new - centre) - (new - centre) @ directions.T @ directions
    extent = np.linalg.norm(known - centre, axis=1).max()
    on_plane = np.linalg.norm(rest, axis=1) <= 10 * _TOLERANCE * max(extent, 1e-300)
    low, high = corners.min(0, initial=np.inf) - _TOLERANCE, corners.max(0, initial=-np.inf) + _TOLERANCE
    in_box = ((candidates >= low) & (candidates <= high)).all(1)
    found = on_plane & in_box
    if rank:  # if all points coincide, their plane is the hull
        found[found] = inside(corners, candidates[found])
    return found, rank


def binomial_error(count: int, total: int) -> float:
    """The standard error of a share; of (count + 1)/(total + 2), so that none of a few is not certainty.

    Args:
        count: The number of successes.
        total: The number of trials.
    """
    share = (count + 1) / (total + 2)
    return float((share * (1 - share) / total) ** 0.5)


def binomial_interval(count: int, total: int, level: float = 0.95) -> list[float]:
    """The exact interval of Clopper and Pearson for a share.

    Args:
        count: The number of successes.
        total: The number of trials.
        level: The minimum probability that it contains the true share.
    """
    from scipy import special

    tail = (1 - level) / 2
    low = special.betaincinv(count, total - count + 1, tail) if count > 0 else 0.0
    high = special.betaincinv(count + 1, total - count, 1 - tail) if count < total else 1.0
    return [float(low), float(high)]
