"""Toy data with known answers: moons, circles, spirals, xor in the plane, and regression on a known teacher.

The points depend on the dataset's own `seed` alone: it belongs to the recipe, so that replicas with other
seeds learn from the same points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.core import Facts, Source, Split
from apoint.data.memory import Amount, refuse_too_large
from apoint.data.streams import generator
from apoint.registry import register
from apoint.settings import NonNegative, NotTruth, Positive, WholeNumber

SampleCount = Annotated[int, Field(ge=10, le=10_000_000)]
ClassCount = Annotated[int, Field(ge=2, le=1000)]
UnitCount = Annotated[int, NotTruth, Field(ge=0, le=10_000_000)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


def _plane(points: list[Tensor], noise: float, seed: int, purpose: str) -> Source:
    """Points per class, in float64, as a source: noise added, classes shuffled together."""
    rng = generator(seed, purpose)
    inputs_N2 = torch.cat(points)
    inputs_N2 = inputs_N2 + noise * torch.randn(inputs_N2.shape, generator=rng, dtype=torch.float64)
    labels_N = torch.cat([torch.full((len(part),), label) for label, part in enumerate(points)])
    order = torch.randperm(len(labels_N), generator=rng)
    names = tuple(str(label) for label in range(len(points)))
    facts = Facts("vector", "classification", (2,), len(points), names)
    return Source(facts, Split(inputs_N2[order].float(), labels_N[order]))


def _shares(total: int, parts: int) -> list[int]:
    """`total` divided into `parts` that differ by at most one; later parts are larger, as in scikit-learn."""
    return [(total * (part + 1)) // parts - (total * part) // parts for part in range(parts)]


def _on_circle(angle: Tensor) -> Tensor:
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)


def _even(stop: float, count: int) -> Tensor:
    return torch.linspace(0, stop, count, dtype=torch.float64)


@register("dataset", "moons", origin="embedded", input="vector", task="classification")
def moons(*, num_samples: SampleCount = 1000, noise: NonNegative = 0.1, seed: WholeNumber = 0) -> Source:
    """Two interleaving half-moons in the plane.

    The smallest problem that no straight line solves. Class 0 is (cos θ, sin θ), class 1 is
    (1 − cos θ, ½ − sin θ), with θ evenly spaced on [0, π], plus Gaussian `noise`. Without noise these are the
    points of scikit-learn's `make_moons`.

    Args:
        num_samples: The number of points, half of them in each class.
        noise: The standard deviation of the Gaussian noise on both coordinates.
        seed: Determines the noise and the order of the points.

    Reference: `sklearn.datasets.make_moons`.
    """
    outer, inner = (_even(math.pi, count) for count in _shares(num_samples, 2))
    lower = torch.stack([1 - torch.cos(inner), 0.5 - torch.sin(inner)], dim=1)
    return _plane([_on_circle(outer), lower], noise, seed, "moons")


@register("dataset", "circles", origin="embedded", input="vector", task="classification")
def circles(
    *,
    num_samples: SampleCount = 1000,
    noise: NonNegative = 0.05,
    factor: Fraction = 0.5,
    seed: WholeNumber = 0,
) -> Source:
    """Two concentric circles in the plane.

    The inner class is surrounded, so one hidden layer needs at least three units. Class 0 is (cos θ, sin θ),
    class 1 is `factor` · (cos θ, sin θ), with θ evenly spaced on [0, 2π), plus Gaussian `noise`. Without
    noise these are the points of scikit-learn's `make_circles`.

    Args:
        num_samples: The number of points, half of them on each circle.
        noise: The standard deviation of the Gaussian noise on both coordinates.
        factor: The radius of the inner circle; the outer one has radius 1.
        seed: Determines the noise and the order of the points.

    Reference: `sklearn.datasets.make_circles`.
    """
    outer, inner = (2 * math.pi * torch.arange(n).double() / n for n in _shares(num_samples, 2))
    return _plane([_on_circle(outer), factor * _on_circle(inner)], noise, seed, "circles")


@register("dataset", "spirals", origin="embedded", input="vector", task="classification")
def spirals(
    *,
    num_samples: SampleCount = 1000,
    num_classes: ClassCount = 2,
    turns: Positive = 1.5,
    noise: NonNegative = 0.02,
    seed: WholeNumber = 0,
) -> Source:
    """Intertwined spirals in the plane, one per class.

    Hard for shallow and narrow networks: the boundary winds as often as the spirals do. Class k is
    t · (cos φ, sin φ) with φ = 2π (`turns` · t + k / `num_classes`), where t = √u with u evenly spaced on
    (0, 1], so that the points are about evenly spaced along the arm; plus Gaussian `noise`.

    Args:
        num_samples: The number of points, divided evenly among the classes.
        num_classes: The number of spirals.
        turns: How often each spiral winds around the centre.
        noise: The standard deviation of the Gaussian noise on both coordinates.
        seed: Determines the noise and the order of the points.

    Reference: K. J. Lang, M. J. Witbrock, «Learning to tell two spirals apart», Connectionist Models Summer
    School, 1988 (there with three turns and 194 points without noise).
    """
    arms = []
    for label, count in enumerate(_shares(num_samples, num_classes)):
        radius = (torch.arange(1, count + 1).double() / count).sqrt()
        angle = 2 * math.pi * (turns * radius + label / num_classes)
        arms.append(radius[:, None] * _on_circle(angle))
    return _plane(arms, noise, seed, "spirals")


@register("dataset", "xor", origin="embedded", input="vector", task="classification")
def xor(*, num_samples: SampleCount = 1000, noise: NonNegative = 0.2, seed: WholeNumber = 0) -> Source:
    """Exclusive or: four clouds at (±1, ±1), with opposite corners in one class.

    The classic problem that a single layer cannot learn. A point's class is 1 if the signs of its corner's
    coordinates differ, 0 if they agree; the cloud around the corner is Gaussian with standard deviation
    `noise`.

    Args:
        num_samples: The number of points, divided evenly among the four corners.
        noise: The standard deviation of each cloud on both coordinates.
        seed: Determines the noise and the order of the points.

    Reference: M. Minsky, S. Papert, «Perceptrons», MIT Press, 1969.
    """
    corners = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    clouds = [corners[k].expand(count, 2) for k, count in enumerate(_shares(num_samples, 4))]
    return _plane([torch.cat(clouds[:2]), torch.cat(clouds[2:])], noise, seed, "xor")


@dataclass(frozen=True)
class Teacher:
    """The function behind the `teacher` dataset: y = V φ(W x), or y = W x if there is no hidden layer.

    Attributes:
        first: W, of shape (width, features), or (targets, features) if `second` is None.
        second: V, of shape (targets, width), or None for the linear teacher.
        activation: φ, `relu` or `tanh`.
    """

    first: Tensor
    second: Tensor | None
    activation: str

    def __call__(self, inputs_NF: Tensor) -> Tensor:
        """The targets without noise, computed in float64."""
        hidden = inputs_NF.double() @ self.first.T
        if self.second is None:
            return hidden
        return (torch.relu(hidden) if self.activation == "relu" else torch.tanh(hidden)) @ self.second.T


def make_teacher(
    *,
    num_features: int = 20,
    num_targets: int = 1,
    width: int = 0,
    activation: Literal["relu", "tanh"] = "relu",
    seed: int = 0,
) -> Teacher:
    """The teacher behind the `teacher` dataset with the same settings."""
    rng = generator(seed, "teacher")

    def gaussian(rows: int, columns: int, variance: float) -> Tensor:
        return torch.randn(rows, columns, generator=rng, dtype=torch.float64) * math.sqrt(variance)

    if width == 0:
        return Teacher(gaussian(num_targets, num_features, 1 / num_features), None, activation)
    first = gaussian(width, num_features, 1 / num_features)
    return Teacher(first, gaussian(num_targets, width, 2 / width), activation)


@register("dataset", "teacher", course="K5", origin="embedded", input="vector", task="regression")
def teacher(
    *,
    num_samples: SampleCount = 1000,
    num_features: Amount = 20,
    num_targets: Amount = 1,
    width: UnitCount = 0,
    activation: Literal["relu", "tanh"] = "relu",
    noise: NonNegative = 0.1,
    seed: WholeNumber = 0,
) -> Source:
    """Gaussian regression on a known teacher, linear or with one hidden layer.

    For comparisons with the truth: x is standard normal, y = teacher(x) + `noise` · ε
    with ε standard normal, so the best possible mean squared error is `noise`². The linear teacher (`width`
    0) is W x with W of variance 1 / `num_features`; the other is V φ(W x) with V of variance 2 / `width`, so
    that targets are of order one. `apoint.data.make_teacher` with the same settings returns the teacher
    itself; it takes inputs before normalisation.

    Args:
        num_samples: The number of points.
        num_features: The dimension of x.
        num_targets: The dimension of y.
        width: The number of hidden units of the teacher; 0 for a linear teacher.
        activation: The teacher's activation φ, if it has hidden units.
        noise: The standard deviation of the noise on each target.
        seed: Determines the teacher, the points and the noise.

    Reference: H. S. Seung, H. Sompolinsky, N. Tishby, «Statistical mechanics of learning from examples»,
    Physical Review A 45, 1992.
    """
    weights = (num_features + num_targets) * width if width else num_features * num_targets
    numbers = num_samples * (num_features + num_targets + width) + weights
    refuse_too_large(8 * numbers, "dataset 'teacher'")
    truth = make_teacher(
        num_features=num_features, num_targets=num_targets, width=width, activation=activation, seed=seed
    )
    rng = generator(seed, "teacher points")
    inputs_NF = torch.randn(num_samples, num_features, generator=rng)
    clean = truth(inputs_NF)
    targets = clean + noise * torch.randn(clean.shape, generator=rng, dtype=torch.float64)
    facts = Facts("vector", "regression", (num_features,), num_targets)
    return Source(facts, Split(inputs_NF, targets.float()))
