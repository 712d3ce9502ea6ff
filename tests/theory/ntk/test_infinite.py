"""Kernels of infinitely wide networks: known values, slow definitions, and wide random networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError
from apoint.theory import ntk
from apoint.theory.ntk import activations, kernels

CLOSED: dict[str, tuple[activations.Activation, Callable[[float], float], Callable[[float], float]]] = {
    "relu": ("relu", lambda x: max(x, 0.0), lambda x: float(x > 0)),
    "leaky relu": (
        {"name": "leaky-relu", "slope": 0.3},
        lambda x: x if x > 0 else 0.3 * x,
        lambda x: 1.0 if x > 0 else 0.3,
    ),
    "erf": ("erf", math.erf, lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x)),
    "gelu": (
        "gelu",
        lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
        lambda x: (1 + math.erf(x / math.sqrt(2))) / 2 + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    ),
    "identity": ("identity", lambda x: x, lambda x: 1.0),
    "tanh (series)": ("tanh", math.tanh, lambda x: 1 - math.tanh(x) ** 2),
    "function (series)": (torch.sin, math.sin, math.cos),
}


def values(p: float, q: float, c: float, dual: activations.Dual) -> list[float]:
    one, other, middle = (torch.tensor([v], dtype=torch.float64) for v in (p, q, c))
    return [float(v) for v in dual.pair(middle, dual.describe(one), dual.describe(other))]


def integral(function: Callable[[float], float], p: float, q: float, c: float) -> float:
    """E[f(u)f(v)] by adaptive integration over the plane, cut at 0 where functions have their kinks."""
    slope, rest = c / p, math.sqrt(q - c * c / p)

    def inner(u: float) -> float:
        weight = math.exp(-u * u / (2 * p)) / math.sqrt(2 * math.pi * p)
        density = lambda v: math.exp(-(((v - slope * u) / rest) ** 2) / 2) / math.sqrt(2 * math.pi) / rest  # noqa: E731
        middle = slope * u
        edges = sorted(
            {middle - 9 * rest, middle + 9 * rest, min(max(0.0, middle - 9 * rest), middle + 9 * rest)}
        )
        parts = [
            integrate.quad(lambda v: function(v) * density(v), a, b, epsabs=1e-11)[0]
            for a, b in itertools.pairwise(edges)
        ]
        return weight * function(u) * sum(parts)

    reach = 9 * math.sqrt(p)
    return float(sum(integrate.quad(inner, a, b, epsabs=1e-9)[0] for a, b in ((-reach, 0), (0, reach))))


@pytest.mark.parametrize("name", list(CLOSED))
def test_expectations_are_those_of_numerical_integration(name: str) -> None:
    activation, function, slope = CLOSED[name]
    p, q, c = 1.7, 0.6, -0.5
    found = values(p, q, c, activations.dual(activation))
    assert found[0] == pytest.approx(integral(function, p, q, c), abs=1e-7)
    assert found[1] == pytest.approx(integral(slope, p, q, c), abs=1e-7)


@settings(deadline=None, max_examples=8)
@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0), st.floats(-0.98, 0.98))
def test_closed_forms_and_the_series_agree(p: float, q: float, correlation: float) -> None:
    c = correlation * math.sqrt(p * q)
    pairs = {"erf": torch.erf, "gelu": nn.GELU(), "relu": nn.ReLU(), "leaky-relu": nn.LeakyReLU(0.01)}
    for name, function in pairs.items():
        closed, series = (
            values(p, q, c, activations.dual(name)),
            values(p, q, c, activations.Series(function)),
        )
        assert closed == pytest.approx(series, abs=1e-7), name


@pytest.mark.parametrize("name", ["erf", "gelu", "tanh", "selu", {"name": "leaky-relu", "slope": 0.2}])
def test_alone_is_the_pair_with_itself(name: activations.Activation) -> None:
    dual, p = activations.dual(name), torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    for one, other in zip(dual.alone(p), dual.pair(p, dual.describe(p), dual.describe(p)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_stated_accuracy_of_the_series() -> None:
    for name in ("tanh", "sigmoid", "swish", "softplus", "mish"):
        assert max(activations.dual(name).accuracy(2.0)) < 1e-11, name  # type: ignore[attr-defined]
    for name in ("elu", "selu", "softsign"):
        value, slope = activations.dual(name).accuracy(2.0)  # type: ignore[attr-defined]
        assert value < 1e-5, name
        assert slope < 5e-4, name
    hardtanh = activations.dual("hardtanh")
    assert isinstance(hardtanh, activations.Series)
    value, slope = hardtanh.accuracy(1.0)
    assert value < 1e-4
    assert 1e-3 < slope < 2e-2
    fewer = activations.Series(nn.Hardtanh(), terms=50)
    assert fewer.accuracy(1.0)[1] > slope


def test_many_variances_are_interpolated_well() -> None:
    dual = activations.Series(torch.tanh)
    many = torch.linspace(0.05, 4, 300, dtype=torch.float64)
    some = many[::30]
    torch.testing.assert_close(dual.describe(many)[:, ::30], dual.describe(some), rtol=0, atol=1e-9)
    torch.testing.assert_close(dual.alone(many)[1][::30], dual.alone(some)[1], rtol=0, atol=1e-9)


def test_known_values() -> None:
    """The arc-cosine kernels of Cho and Saul at a right angle and at 60 degrees, and kernels of one layer."""
    x = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)], [0.0, 1.0]], dtype=torch.float64) * math.sqrt(2)
    found = ntk.infinite_width(1, "relu", weight_variance=1.0)(x)
    angle = torch.tensor([0.0, math.pi / 3, math.pi / 2], dtype=torch.float64)
    order0, order1 = 1 - angle / math.pi, (angle.sin() + (math.pi - angle) * angle.cos()) / math.pi
    torch.testing.assert_close(found.nngp[0], order1 / 2)
    torch.testing.assert_close(found.ntk[0], order1 / 2 + angle.cos() * order0 / 2)
    deep = ntk.infinite_width(3, "relu")(x)
    torch.testing.assert_close(deep.nngp.diagonal(), torch.full((3,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(deep.ntk.diagonal(), torch.full((3,), 8.0, dtype=torch.float64))


def test_linear_models() -> None:
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = ntk.infinite_width(0, weight_variance=3.0, bias_variance=0.25)(x)
    torch.testing.assert_close(found.ntk, 3 * x @ x.T / 6 + 0.25)
    torch.testing.assert_close(found.nngp, found.ntk)


def draws(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


SETTINGS = {
    "relu": {"depth": 2, "activation": "relu", "weight_variance": 1.5, "bias_variance": 0.2},
    "gelu": {"depth": 2, "activation": "gelu", "weight_variance": 2.0, "bias_variance": 0.1},
    "tanh": {"depth": 3, "activation": "tanh", "weight_variance": 1.2, "bias_variance": 0.0},
}


@pytest.mark.parametrize("name", list(SETTINGS))
def test_wide_networks_have_these_kernels(name: str) -> None:
    """The mean over independent networks, with its standard error; a width's bias is of order 1/width."""
    chosen, x, generator = SETTINGS[name], draws(0, 3, 5), torch.Generator().manual_seed(1)
    limit = ntk.infinite_width(**chosen)(x)  # type: ignore[arg-type]
    tangents, outputs = [], []
    for _ in range(40):
        network = ntk.DenseNetwork(5, 256, outputs=8, generator=generator, **chosen).double()  # type: ignore[arg-type]
        tangents.append(ntk.empirical(network, x, form="trace") / 8)
        outputs.append(network(x).detach())
    sampled = torch.stack(tangents)
    error = sampled.std(0) / math.sqrt(40)
    assert bool(((sampled.mean(0) - limit.ntk).abs() < 4 * error + 0.02 * limit.ntk.abs()).all())
    drawn = torch.cat(outputs, 1)
    covariance = drawn @ drawn.T / drawn.shape[1]
    # the spread of a product of two normal numbers, over 320 nearly independent outputs
    spread = ((limit.nngp.square() + torch.outer(limit.nngp.diagonal(), limit.nngp.diagonal())) / 320).sqrt()
    assert bool(((covariance - limit.nngp).abs() < 4 * spread + 0.02 * limit.nngp.abs()).all())


def test_the_error_falls_with_the_root_of_the_width() -> None:
    x, generator = draws(2, 6, 8), torch.Generator().manual_seed(3)
    limit, widths = ntk.infinite_width(2, bias_variance=0.1)(x).ntk, (32, 128, 512)
    errors = []
    for width in widths:
        found = [
            ntk.empirical(
                ntk.DenseNetwork(8, width, 2, bias_variance=0.1, generator=generator).double(),
                x,
                form="trace",
            )
            for _ in range(12)
        ]
        errors.append(float(torch.stack([(one - limit).norm() for one in found]).square().mean().sqrt()))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    # a root mean square over 12 networks has a relative error of about 1/√24, which moves the slope by 0.1
    assert -0.8 < slope < -0.25


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_blocks_and_symmetry_change_nothing(activation: str) -> None:
    x = draws(4, 14, 7)
    usual, small = (
        ntk.infinite_width(3, activation, bias_variance=0.1, budget_bytes=budget)(x)
        for budget in (10**8, 10**3)
    )
    apart = ntk.infinite_width(3, activation, bias_variance=0.1)(x, x.clone())
    for one, other, third in zip(usual, small, apart, strict=True):
        assert torch.equal(one, one.T)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
        # between two sets a point is not known to meet itself: there the angle is found to √ε only
        torch.testing.assert_close(one, third, rtol=0, atol=1e-6)


def test_few_rows_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    kept = activations.Rectifier.pair

    def watched(self: activations.Rectifier, c: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        sizes.append(c.nbytes)
        return kept(self, c, one, other)

    monkeypatch.setattr(activations.Rectifier, "pair", watched)
    ntk.infinite_width(1, budget_bytes=80_000)(draws(5, 100, 3))
    assert 0 < max(sizes) <= 10_000


def test_single_precision_is_near_double() -> None:
    x = draws(6, 300, 50)
    single, double = ntk.infinite_width(3)(x.float()), ntk.infinite_width(3)(x)
    for one, other in zip(single, double, strict=True):
        assert one.dtype == torch.float32
        assert float((one.double() - other).abs().max() / other.abs().max()) < 1e-5


def slow_convolution(
    x: Tensor, y: Tensor, depth: int, readout: str, v: float, b: float, kernel: int
) -> list[float]:
    """The definition, place by place, for two images and ReLU."""
    channels, height, width = x.shape
    reach = range(-(kernel // 2), kernel // 2 + 1)
    places = [(i, j) for i in range(height) for j in range(width)]
    arrays = {"xy": (x, y), "xx": (x, x), "yy": (y, y)}
    covariance = {
        (key, s, t): float(one[:, s[0], s[1]] @ other[:, t[0], t[1]]) / channels
        for key, (one, other) in arrays.items() for s in places for t in places
    }  # fmt: skip
    tangent = dict.fromkeys(covariance, 0.0)

    def mean(of: dict[tuple[str, tuple[int, int], tuple[int, int]], float], key: str, s: tuple[int, int], t: tuple[int, int]) -> float:  # fmt: skip  # noqa: E501
        shifts = [(key, (s[0] + i, s[1] + j), (t[0] + i, t[1] + j)) for i in reach for j in reach]
        return sum(of.get(shift, 0.0) for shift in shifts) / kernel**2

    for _ in range(depth):
        sigma = {at: v * mean(covariance, *at) + b for at in covariance}
        theta = {at: v * mean(tangent, *at) + sigma[at] for at in covariance}
        for key, s, t in covariance:
            one, other = {"x": "xx", "y": "yy"}[key[0]], {"x": "xx", "y": "yy"}[key[1]]
            size = math.sqrt(sigma[one, s, s] * sigma[other, t, t])
            angle = math.acos(max(-1.0, min(1.0, sigma[key, s, t] / size)))
            covariance[key, s, t] = (
                size * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi)
            )
            tangent[key, s, t] = theta[key, s, t] * (math.pi - angle) / (2 * math.pi)
    pairs = [(s, s) for s in places] if readout == "flatten" else [(s, t) for s in places for t in places]
    nngp = v * sum(covariance["xy", s, t] for s, t in pairs) / len(pairs) + b
    return [nngp + v * sum(tangent["xy", s, t] for s, t in pairs) / len(pairs), nngp]


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_convolutions_are_those_of_the_slow_definition(readout: str, kernel: int) -> None:
    x = draws(7, 3, 2, 3, 4)
    usual = ntk.infinite_convolution(2, "relu", kernel, readout, 1.7, 0.3)(x)  # type: ignore[arg-type]
    few = ntk.infinite_convolution(2, "relu", kernel, readout, 1.7, 0.3, 1)(x, x[:2])  # type: ignore[arg-type]
    for i, j in ((0, 1), (2, 1), (2, 2)):
        slow = slow_convolution(x[i], x[j], 2, readout, 1.7, 0.3, kernel)
        assert [float(one[i, j]) for one in usual] == pytest.approx(slow, abs=1e-6)
    for one, other in zip(usual, few, strict=True):
        torch.testing.assert_close(one[:, :2], other, rtol=0, atol=1e-9)
        assert torch.equal(one, one.T)


@pytest.mark.parametrize("readout", ["flatten", "pool"])
def test_wide_convolutional_networks_have_these_kernels(readout: str) -> None:
    x, generator = draws(8, 3, 2, 4, 4), torch.Generator().manual_seed(9)
    chosen = {
        "depth": 2,
        "activation": "relu",
        "readout": readout,
        "weight_variance": 2.0,
        "bias_variance": 0.1,
    }
    limit = ntk.infinite_convolution(**chosen)(x).ntk  # type: ignore[arg-type]
    found = []
    for _ in range(30):
        network = ntk.ConvolutionalNetwork(2, 16, 96, outputs=2, generator=generator, **chosen).double()  # type: ignore[arg-type]
        found.append(ntk.empirical(network, x, form="trace") / 2)
    sampled = torch.stack(found)
    error = sampled.std(0) / math.sqrt(30)
    assert bool(((sampled.mean(0) - limit).abs() < 4 * error + 0.02 * limit.abs()).all())


def test_a_convolution_of_no_depth_and_of_one_place() -> None:
    x = draws(10, 3, 5, 1, 1)
    flat = ntk.infinite_convolution(0, weight_variance=2.0)(x).ntk
    torch.testing.assert_close(flat, 2 * x.flatten(1) @ x.flatten(1).T / 5)
    # with one place and a kernel of one, a convolution is a dense layer
    dense = ntk.infinite_width(2, "erf", bias_variance=0.1)(x)
    conv = ntk.infinite_convolution(2, "erf", 1, "pool", bias_variance=0.1)(x)
    for one, other in zip(dense, conv, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_what_bad_input_gets() -> None:
    x = torch.randn(3, 4)
    for depth in (-1, 1.5, True):
        with pytest.raises(UsageError, match="depth must be a whole number of hidden layers from 0 on"):
            ntk.infinite_width(depth)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="weight_variance must be positive and finite, got 0"):
        ntk.infinite_width(weight_variance=0)
    with pytest.raises(UsageError, match="bias_variance must be at least 0 and finite, got -1"):
        ntk.infinite_width(bias_variance=-1)
    with pytest.raises(UsageError, match="budget_bytes must be positive, got 0"):
        ntk.infinite_width(budget_bytes=0)
    with pytest.raises(UnknownNameError, match="unknown activation 'rleu'"):
        ntk.infinite_width(activation="rleu")
    with pytest.raises(UsageError, match="a name such as 'relu', a mapping or a function, got 3"):
        ntk.infinite_width(activation=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"tensors of float32 or float64, got torch\.int64"):
        ntk.infinite_width()(x.long())
    with pytest.raises(UsageError, match=r"the shape \[n, features\], got \(4,\)"):
        ntk.infinite_width()(x[0])
    with pytest.raises(UsageError, match="must be finite, got NaN or infinity"):
        ntk.infinite_width()(x / 0)
    with pytest.raises(
        UsageError, match=r"inputs of one shape and type, got \(4,\) torch.float32 and \(3,\)"
    ):
        ntk.infinite_width()(x, x[:, :3])
    with pytest.raises(UsageError, match="needs variances above 0, got 0; leave out inputs that are all 0"):
        ntk.infinite_width(activation="tanh")(x * 0)
    with pytest.raises(UsageError, match="kernel must be an odd number of places, got 2"):
        ntk.infinite_convolution(kernel=2)
    with pytest.raises(UsageError, match="readout must be 'flatten' or 'pool', got 'max'"):
        ntk.infinite_convolution(readout="max")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the shape \[n, channels, height, width\], got \(3, 4\)"):
        ntk.infinite_convolution()(x)


def test_rows_are_cut_by_the_budget() -> None:
    assert [s.stop - s.start for s in kernels.row_blocks(10, 100, 350)] == [3, 3, 3, 1]
    assert [s.stop - s.start for s in kernels.row_blocks(2, 100, 1)] == [1, 1]
