"""How distances and angles concentrate in a space: the inputs, or their representation in a layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError
from apoint.probes.batch import Batch
from apoint.probes.operations import Call, Operation
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import ModelFailedError, Subject
from apoint.probes.watching import Watcher, watch
from apoint.registry import register
from apoint.settings import Count, WholeNumber

Matrix = np.ndarray[Any, np.dtype[np.float64]]
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@register("probe", "concentration", course="E3 E4", passes=1)
def concentration(
    model: nn.Module,
    batch: Any,
    *,
    space: str = "inputs",
    max_points: Count = 1000,
    seed: WholeNumber = 0,
) -> Reading:
    """How much the distances between examples differ, relative to their mean, and how their angles spread.

    Shows how far data and features are from the featureless cloud of random points in many dimensions, where
    all distances are alike and all directions orthogonal.

    The value is the standard deviation of the distances of all pairs of examples, divided by their mean; its
    uncertainty is from the jackknife over examples. For a Gaussian cloud with the same variance in all d
    directions it is √(d/μ² − 1) with μ = √2·Γ((d+1)/2)/Γ(d/2), near 1/√(2d): `gaussian` in the details.
    `distance_dimension` is the d whose Gaussian cloud would give this value, `effective_dimension` the
    participation ratio (Σλ)²/Σλ² of the eigenvalues λ of the covariance, at most n − 1 for n examples.
    Cosines are between pairs of examples around their mean (`cosines`, with expected mean −1/(n−1)) and
    around 0 (`raw_cosines`); those of random directions have mean 0, standard deviation 1/√d and
    (1 + cos)/2 ~ Beta((d−1)/2, (d−1)/2).

    The model is in eval mode.

    Args:
        space: `inputs`; `features`, the input of the last layer; or the name of a module or operation, for
            its output.
        max_points: The maximum number of examples, drawn at random.
        seed: Seed of that draw.

    Reference: Beyer et al. (1999), When is "nearest neighbor" meaningful?; Aggarwal, Hinneburg and Keim
    (2001), On the surprising behavior of distance metrics in high dimensional space.
    """
    subject = Subject(model, batch)
    try:
        points = points_in(subject, subject.batch, space, seed)
    except (UnknownNameError, ModelFailedError):
        raise
    except UsageError as error:
        return undefined("concentration", str(error))
    points = some(points, max_points, seed)
    if len(points) < 3:
        return undefined("concentration", f"pairs need three examples, and there are {len(points)}")
    if not np.isfinite(points).all():
        return undefined("concentration", f"the points in {space} are not finite")
    distances = pairwise_distances(points)
    value, deviation = relative_spread(distances)
    if not math.isfinite(value):
        return undefined("concentration", f"all points in {space} are the same")
    num_points, size = points.shape
    return Reading(
        "concentration",
        value,
        f"estimated from {num_points} points in {space}",
        "estimated",
        uncertainty=deviation,
        details={
            "num_points": num_points,
            "dimension": size,
            "gaussian": gaussian_spread(size),
            "distance_dimension": dimension_of_spread(value),
            "effective_dimension": participation_ratio(points),
            "mean_distance": float(distances[np.triu_indices(num_points, 1)].mean()),
            "cosines": _summary(cosines(points - points.mean(0))),
            "raw_cosines": _summary(cosines(points)),
            "gaussian_cosines": gaussian_cosines(size),
        },
    )


# -- points --------------------------------------------------------------------------------------------------


def points_in(subject: Subject, batch: Batch, space: str, seed: int = 0) -> Matrix:
    """A row of numbers for each example of a batch, in a chosen space, with the model in eval mode.

    Args:
        subject: The model.
        batch: The examples.
        space: `inputs`, `features`, or the name of a module or an operation.
        seed: Seed of the model's random draws.
    """
    if space == "inputs":
        real = [t for t in batch.tensors if t.is_floating_point() and len(t) == batch.size]
        if not real:
            raise UsageError("inputs are not real numbers; choose another space, such as `features`")
        found = torch.cat([tensor.reshape(batch.size, -1).double() for tensor in real], 1)
    else:
        with preserve_state(subject.model, seed, mode=False), torch.no_grad():
            found = _inside(subject, batch, space)
    if len(found) != batch.size:
        raise UsageError(f"{space} has {len(found)} rows for {batch.size} examples")
    rows: Matrix = found.detach().reshape(batch.size, -1).double().cpu().numpy()
    return rows


class _Catch(Watcher):
    """Keep the input or the output of one operation."""

    def __init__(self, place: int, is_input: bool) -> None:
        self.place, self.is_input = place, is_input
        self.found: Tensor | None = None

    def before(self, operation: Operation, call: Call) -> None:
        if self.is_input and operation.place == self.place:
            self.found = call.input.detach().clone()

    def after(self, operation: Operation, output: Tensor) -> None:
        if not self.is_input and operation.place == self.place:
            self.found = output.clone()


def _inside(subject: Subject, batch: Batch, space: str) -> Tensor:
    operations, _ = watch(subject, Watcher(), batch=batch)
    if space == "features":
        layers = [operation for operation in operations if operation.is_layer]
        if not layers:
            raise UsageError("the model has no layer with parameters, so that there are no features")
        catch = _Catch(layers[-1].place, is_input=True)
    else:
        places = {operation.name: operation.place for operation in operations}
        for operation in operations:  # a module's output is that of its last operation
            parts = operation.module.split(".")
            for length in range(1, len(parts) + 1):
                places[".".join(parts[:length])] = operation.place
        if space not in places:
            raise UnknownNameError("space", space, {"inputs", "features", *places})
        catch = _Catch(places[space], is_input=False)
    watch(subject, catch, batch=batch)
    if catch.found is None:
        raise UsageError(f"{space} is not made of real numbers")
    return catch.found


def some(points: Matrix, at_most: int, seed: int) -> Matrix:
    """Rows drawn at random without replacement; all of them if there are few enough."""
    if len(points) <= at_most:
        return points
    generator = torch.Generator().manual_seed(seed)
    chosen: Matrix = points[torch.randperm(len(points), generator=generator)[:at_most].numpy()]
    return chosen


# -- distances and angles ------------------------------------------------------------------------------------


def pairwise_distances(points: Matrix) -> Matrix:
    """Euclidean distances of all pairs of rows."""
    centred = points - points.mean(0)
    squares = (centred**2).sum(1)
    products = centred @ centred.T
    found: Matrix = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0))
    np.fill_diagonal(found, 0)
    return found


def relative_spread(distances: Matrix) -> tuple[float, float]:
    """The standard deviation of distances divided by their mean, and its jackknife error over points."""
    n = len(distances)
    first, second = distances.sum() / 2, (distances**2).sum() / 2
    if first == 0:
        return math.nan, math.nan

    def spread(total: Any, squares: Any, pairs: float) -> Any:
        mean = total / pairs
        return np.sqrt(np.maximum(squares / pairs - mean**2, 0)) / mean

    value = spread(first, second, n * (n - 1) / 2)
    without = spread(
        first - distances.sum(1), second - (distances**2).sum(1), (n - 1) * (n - 2) / 2
    )  # each point left out in turn
    error = math.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return float(value), error


def gaussian_spread(dimension: float) -> float:
    """The relative spread of distances in a Gaussian cloud with the same variance in every direction."""
    from scipy import special

    if dimension > 1e4:  # d/μ² − 1 cancels; its series is 1/(2d) + 1/(8d²) + …
        return math.sqrt(1 / (2 * dimension) + 1 / (8 * dimension**2))
    log_mean = 0.5 * math.log(2) + special.gammaln((dimension + 1) / 2) - special.gammaln(dimension / 2)
    return math.sqrt(math.expm1(math.log(dimension) - 2 * log_mean))


def dimension_of_spread(spread: float) -> float:
    """The dimension, not always an integer, of the Gaussian cloud with this spread; infinite for spread 0."""
    from scipy import optimize

    if spread <= 0:
        return math.inf
    low, high = 1e-3, 1e6
    if spread <= gaussian_spread(high):
        return 1 / (2 * spread**2)
    if spread >= gaussian_spread(low):
        return low
    found = optimize.brentq(
        lambda log: gaussian_spread(math.exp(log)) - spread, math.log(low), math.log(high)
    )
    return math.exp(found)


def participation_ratio(points: Matrix) -> float:
    """(Σλ)²/Σλ² of the eigenvalues of the covariance, from the smaller of the two Gram matrices."""
    centred = points - points.mean(0)
    gram = centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred
    total = float((gram**2).sum())
    return float(np.trace(gram)) ** 2 / total if total > 0 else 0.0


def cosines(points: Matrix) -> Matrix:
    """Cosines between all pairs of rows; rows that are all 0 are left out."""
    lengths = np.linalg.norm(points, axis=1)
    directions = points[lengths > 0] / lengths[lengths > 0, None]
    found: Matrix = (directions @ directions.T)[np.triu_indices(len(directions), 1)]
    return found


def gaussian_cosines(dimension: int) -> dict[str, Any]:
    """The distribution of the cosine between two random directions in this many dimensions."""
    if dimension < 2:
        return {"mean": 0.0, "deviation": 1.0, "quantiles": [-1.0, -1.0, 0.0, 1.0, 1.0]}
    from scipy import special

    half = (dimension - 1) / 2
    quantiles = [float(2 * special.betaincinv(half, half, share) - 1) for share in _QUANTILES]
    return {"mean": 0.0, "deviation": dimension**-0.5, "quantiles": quantiles}


def _summary(values: Matrix) -> dict[str, Any]:
    if not len(values):
        return {"mean": math.nan, "deviation": math.nan, "quantiles": []}
    quantiles = np.quantile(values, _QUANTILES).tolist()
    return {"mean": float(values.mean()), "deviation": float(values.std()), "quantiles": quantiles}
