"""Paths through weight space between two trained networks, and how high the loss rises on them.

    landscape = paths.Landscape(model, inputs, targets, torch.nn.functional.cross_entropy)
    first, second = landscape.vector(one), landscape.vector(another)
    straight = paths.line(first, second)
    curve = paths.fit(paths.bezier(first, second), landscape, generator, num_steps=500)
    landscape.profile(curve).barrier

A path is a polygonal chain or a Bezier curve with control points; the first and the last stay fixed.
Everything except `Landscape` works on plain vectors and any function of them.

References: Garipov, Izmailov, Podoprikhin, Vetrov and Wilson (2018), Loss surfaces, mode connectivity, and
fast ensembling of DNNs; Draxler, Veschgini, Salmhofer and Hamprecht (2018), Essentially no barriers in neural
network energy landscape; Freeman and Bruna (2017), Topology and geometry of half-rectified network
optimization.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from apoint.errors import UsageError

Shape = Literal["chain", "bezier"]
Height = Callable[[Tensor], Tensor]
"""The loss at a vector of weights, as a differentiable scalar."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean loss of outputs against targets."""

_GRID = 1001  # sample points along a curve; its length is then accurate to about 1e-6


# -- paths -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Path:
    """A curve γ: [0, 1] → weights, γ(t) = Σ_k c_k(t)·p_k.

    For a chain, which goes straight from point to point in equal times, the c_k are hat functions; for a
    Bezier curve they are the Bernstein polynomials C(K, k)·tᵏ·(1 − t)^(K − k).

    Attributes:
        points: The control points p_0 … p_K, [K + 1, number of weights].
        shape: How the points are joined.
    """

    points: Tensor
    shape: Shape = "chain"

    def __post_init__(self) -> None:
        if self.points.dim() != 2 or len(self.points) < 2:
            raise UsageError(
                f"a path needs at least two points, given as rows; got a tensor of shape "
                f"{tuple(self.points.shape)}"
            )

    def coefficients(self, place: float) -> Tensor:
        """c_0(t) … c_K(t)."""
        if not 0 <= place <= 1:
            raise UsageError(f"a place on a path is between 0 and 1, got {place:g}")
        last = len(self.points) - 1
        if self.shape == "chain":
            distance = torch.arange(last + 1, dtype=torch.float64) - place * last
            values = (1 - distance.abs()).clamp(min=0)
        else:
            values = torch.tensor(
                [math.comb(last, k) * place**k * (1 - place) ** (last - k) for k in range(last + 1)],
                dtype=torch.float64,
            )
        return values.to(self.points)

    def at(self, place: float) -> Tensor:
        """γ(t)."""
        return self.coefficients(place) @ self.points

    @property
    def length(self) -> float:
        """The length of the path: exact for a chain, on a fine grid for a curve."""
        if self.shape == "chain":
            corners = self.points
        else:
            corners = torch.stack([self.at(place) for place in np.linspace(0, 1, _GRID)])
        return float(corners.diff(dim=0).norm(dim=1).sum())

    @property
    def detour(self) -> float:
        """The length of the path divided by that of the straight line."""
        return self.length / float((self.points[-1] - self.points[0]).norm())

    def places(self, count: int) -> list[float]:
        """Evenly spaced places and, for a chain, its corners, where the loss may well peak."""
        places = [np.linspace(0, 1, count)]
        if self.shape == "chain":
            places.append(np.linspace(0, 1, len(self.points)))
        return sorted({round(float(place), 12) for place in np.concatenate(places)})


def line(first: Tensor, second: Tensor) -> Path:
    """The straight line between two vectors of weights."""
    return Path(torch.stack(_ends(first, second)))


def bezier(first: Tensor, second: Tensor, num_bends: int = 1) -> Path:
    """A Bezier curve whose inner control points lie on the straight line, ready to be fitted.

    Args:
        first: γ(0).
        second: γ(1).
        num_bends: Number of inner control points; one gives (1 − t)²·first + 2t(1 − t)·p + t²·second.
    """
    return Path(_spread(first, second, num_bends), "bezier")


def chain(first: Tensor, second: Tensor, num_bends: int = 1) -> Path:
    """A polygonal chain whose corners lie on the straight line, ready to be fitted.

    Args:
        first: γ(0).
        second: γ(1).
        num_bends: Number of corners between the ends.
    """
    return Path(_spread(first, second, num_bends))


def _spread(first: Tensor, second: Tensor, num_bends: int) -> Tensor:
    if num_bends < 1:
        raise UsageError(f"a path that can be bent has at least 1 bend, got {num_bends}")
    begin, end = _ends(first, second)
    shares = torch.linspace(0, 1, num_bends + 2, dtype=begin.dtype)[:, None]
    points = begin + shares * (end - begin)
    points[-1] = end  # exactly, not up to rounding
    return points


def _ends(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    if first.shape != second.shape or first.dim() != 1:
        raise UsageError(
            "the ends of a path must be two vectors of the same length, got shapes "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if torch.equal(first, second):
        raise UsageError("the ends of a path must differ, got the same weights twice")
    return first.detach().clone(), second.detach().clone()


# -- finding low ones ------------------------------------------------------------------------------------


def fit(
    path: Path,
    height: Height,
    generator: torch.Generator,
    num_steps: int = 500,
    lr: float = 0.01,
    num_places: int = 1,
) -> Path:
    """Bend a path so that the mean loss over it is low: min over inner points of E_t L(γ(t)), t uniform.

    Each step draws one place from each of `num_places` equal parts of [0, 1] and takes an Adam step. The
    learning rate decays to 0 along a half cosine. The ends stay fixed.

    Args:
        path: The starting path; its shape is kept.
        height: L, the loss at a vector of weights.
        generator: Draws the places.
        num_steps: Number of Adam steps.
        lr: Initial learning rate.
        num_places: Number of places drawn per step.
    """
    _positive("num_steps", num_steps)
    _positive("num_places", num_places)
    _positive("lr", lr)
    if len(path.points) < 3:
        raise UsageError("a path needs an inner point to be bent at, and this one has only its two ends")
    ends, inner = path.points[[0, -1]], path.points[1:-1].detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([inner], lr=lr)
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step / num_steps)) / 2
        optimizer.zero_grad()
        moving = Path(torch.cat([ends[:1], inner, ends[1:]]), path.shape)
        draws = torch.rand(num_places, generator=generator, dtype=torch.float64)
        for number, draw in enumerate(draws.tolist()):
            (height(moving.at((number + draw) / num_places)) / num_places).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Path(torch.cat([ends[:1], inner.detach(), ends[1:]]), path.shape)


def elastic_band(
    first: Tensor,
    second: Tensor,
    height: Height,
    num_pivots: int = 9,
    num_steps: int = 200,
    lr: float = 0.1,
    momentum: float = 0.9,
    spring: float | None = None,
) -> Path:
    """A nudged elastic band: pivots descend the loss across it, and only keep their distance along it.

    With τ the unit tangent at a pivot p_i, towards its higher neighbour, each step moves it by the force

        F = −(∇L − ⟨∇L, τ⟩τ) + k·(‖p_{i+1} − p_i‖ − ‖p_i − p_{i−1}‖)·τ.

    The gradient along the band is left out because it would only pull pivots into the ends. The springs'
    pull across the band is left out because it would cut corners. The band passes over the lowest saddle
    nearby.

    Args:
        first: γ(0).
        second: γ(1).
        height: L, the loss at a vector of weights.
        num_pivots: Number of pivots between the ends.
        num_steps: Number of steps.
        lr: Factor on the force; decays to 0 along a half cosine.
        momentum: Fraction of the previous movement that is kept.
        spring: k, above 0; None for stiff springs: each step ends with pivots at equal distances.
    """
    _positive("num_steps", num_steps)
    _positive("lr", lr)
    if spring is not None:
        _positive("spring", spring)
    if not 0 <= momentum < 1:
        raise UsageError(f"elastic_band: momentum must be at least 0 and below 1, got {momentum:g}")
    points = _spread(first, second, num_pivots)
    movement = torch.zeros_like(points[1:-1])
    for step in range(num_steps):
        rate = lr * (1 + math.cos(math.pi * step / num_steps)) / 2
        movement = momentum * movement + rate * _forces(points, height, spring)
        points[1:-1] += movement
        if spring is None:
            points = _even(points)
    return Path(points)


def _forces(points: Tensor, height: Height, spring: float | None) -> Tensor:
    heights, gradients = [], []
    for point in points:
        place = point.clone().requires_grad_()
        value = height(place)
        gradients.append(torch.autograd.grad(value, place)[0])
        heights.append(float(value.detach()))
    forces = []
    for i in range(1, len(points) - 1):
        ahead, behind = points[i + 1] - points[i], points[i] - points[i - 1]
        tangent = nn.functional.normalize(ahead if heights[i + 1] > heights[i - 1] else behind, dim=0)
        across = gradients[i] - (gradients[i] @ tangent) * tangent
        pull = 0.0 if spring is None else spring * float(ahead.norm() - behind.norm())
        forces.append(pull * tangent - across)
    return torch.stack(forces)


def _even(points: Tensor) -> Tensor:
    """Points at equal distances along the chain through these points; the ends are kept."""
    gaps = points.diff(dim=0).norm(dim=1)
    reached = torch.cat([gaps.new_zeros(1), gaps.cumsum(0)])
    wanted = torch.linspace(0, 1, len(points), dtype=points.dtype)[1:-1] * reached[-1]
    after = torch.searchsorted(reached, wanted).clamp(1, len(points) - 1)
    shares = ((wanted - reached[after - 1]) / gaps[after - 1].clamp(min=1e-30))[:, None]
    inner = points[after - 1] + shares * (points[after] - points[after - 1])
    return torch.cat([points[:1], inner, points[-1:]])


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{name} must be positive and finite, got {value:g}")


# -- how high it rises -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """The loss along a path.

    Attributes:
        places: t, from 0 to 1.
        losses: L(γ(t)).
    """

    places: list[float]
    losses: list[float]

    @property
    def end(self) -> float:
        """The loss at the worse of the two ends."""
        return max(self.losses[0], self.losses[-1])

    @property
    def highest(self) -> float:
        """The largest loss along the path, ends included."""
        return max(self.losses)

    @property
    def barrier(self) -> float:
        """How far the loss rises above the worse end: max_t L(γ(t)) − max(L(γ(0)), L(γ(1)))."""
        return self.highest - self.end


def profile(path: Path, height: Height, count: int = 61) -> Profile:
    """The loss at evenly spaced places of a path and at the corners of a chain.

    Args:
        path: The path to evaluate.
        height: L, the loss at a vector of weights.
        count: Number of evenly spaced places, at least 2.
    """
    if count < 2:
        raise UsageError(f"a profile needs at least the two ends, so count is 2 or more; got {count}")
    places = path.places(count)
    with torch.no_grad():
        return Profile(places, [float(height(path.at(place))) for place in places])


class Landscape:
    """The loss of a module on fixed data, as a function of all its weights in one vector.

    Calling it with a vector returns the loss with a graph, for fitting. Batch norm normalises by the
    statistics of the data, and everything else (dropout) is in eval mode, so that the loss is a function of
    the weights alone. `profile` and `network` follow Garipov et al.: statistics gathered at other weights
    mean nothing on a path, so they are recomputed at each place, and the module is then in eval mode.

    Args:
        model: Any module; it is copied and never changed.
        inputs: A batch of inputs.
        targets: Their targets.
        loss: Function of outputs and targets, averaged over examples.
        l2: κ of the penalty κ·‖θ‖² added to the loss.
        refresh: Whether to recompute batch norm statistics; otherwise those of the module are used.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        loss: Loss,
        l2: float = 0.0,
        refresh: bool = True,
    ) -> None:
        self.model = copy.deepcopy(model).eval()
        self.inputs, self.targets, self.loss, self.l2, self.refresh = inputs, targets, loss, l2, refresh
        self.shapes = {name: p.shape for name, p in self.model.named_parameters()}
        if not self.shapes:
            raise UsageError(
                f"a path needs weights to go through, and {type(model).__name__} has no parameters"
            )

    def vector(self, model: nn.Module) -> Tensor:
        """All weights of a module of the same shape, as one vector."""
        weights = dict(model.named_parameters())
        _same_shape(self.shapes, {name: p.shape for name, p in weights.items()})
        return torch.cat([weights[name].detach().reshape(-1) for name in self.shapes])

    def weights(self, vector: Tensor) -> dict[str, Tensor]:
        """Split the vector into parameters by name; gradients flow through."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in pairs}

    def __call__(self, vector: Tensor) -> Tensor:
        return self.on(vector, self.inputs, self.targets)

    def on(self, vector: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss on other data, with a graph."""
        norms = _batch_norms(self.model) if self.refresh else []
        for norm in norms:
            norm.train()
        outputs = functional_call(self.model, self.weights(vector), (inputs,))
        for norm in norms:
            norm.eval()
        return self.loss(outputs, targets) + self.l2 * vector.square().sum()

    def batches(self, batch_size: int, generator: torch.Generator) -> Height:
        """The loss on a fresh batch at each call, for fitting on large data.

        Args:
            batch_size: Examples per batch, at most the number of examples.
            generator: Draws the batches.
        """
        _positive("batch_size", batch_size)

        def height(vector: Tensor) -> Tensor:
            chosen = torch.randperm(len(self.inputs), generator=generator)[:batch_size]
            return self.on(vector, self.inputs[chosen], self.targets[chosen])

        return height

    def network(self, vector: Tensor) -> nn.Module:
        """A separate module with these weights, in eval mode, with batch norm refreshed on the data."""
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(self.weights(vector)[name])
            norms = _batch_norms(model) if self.refresh else []
            usual = [norm.momentum for norm in norms]
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # plain average, over one pass through all data
                norm.train()
            if norms:
                model(self.inputs)
            for norm, momentum in zip(norms, usual, strict=True):
                norm.momentum = momentum
        return model.eval()

    def profile(self, path: Path, count: int = 61) -> Profile:
        """The loss along a path in eval mode, with batch norm refreshed at each place.

        Args:
            path: The path to evaluate.
            count: Number of evenly spaced places, at least 2.
        """

        def height(vector: Tensor) -> Tensor:
            outputs: Tensor = self.network(vector)(self.inputs)
            return self.loss(outputs, self.targets) + self.l2 * vector.square().sum()

        return profile(path, height, count)


def _batch_norms(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    found = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    return [part for part in found if part.track_running_stats]


def _same_shape(first: Mapping[str, torch.Size], second: Mapping[str, torch.Size]) -> None:
    for name in [*first, *(name for name in second if name not in first)]:
        has = [tuple(one[name]) if name in one else None for one in (first, second)]
        if has[0] != has[1]:
            sides = ["is missing" if shape is None else f"has shape {shape}" for shape in has]
            raise UsageError(
                f"two networks on a path must have parameters of the same names and shapes, but {name} "
                f"{sides[0]} in the first and {sides[1]} in the second"
            )
