"""The network of the over-parametrisation theorem, against modules, sampling, finite differences, by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from apoint.errors import UsageError
from apoint.theory import overparametrisation as wide


def problem(count=6, outputs=2, seed=0):
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=random).double()
    return inputs / inputs.norm(dim=1, keepdim=True), torch.randn(count, outputs, generator=random).double()


def network(width=12, depth=2, outputs=2, seed=0, **more):
    return wide.draw(width, depth, 5, outputs, torch.Generator().manual_seed(seed), **more)


def test_the_network_is_a_plain_perceptron():
    net, (inputs, _) = network(), problem()
    module = nn.Sequential(
        nn.Linear(5, 12, bias=False), nn.ReLU(), nn.Linear(12, 12, bias=False), nn.ReLU(),
        nn.Linear(12, 12, bias=False), nn.ReLU(), nn.Linear(12, 2, bias=False),
    ).double()  # fmt: skip
    with torch.no_grad():
        weights = (net.first, *net.hidden, net.last)
        for parameter, value in zip(module.parameters(), weights, strict=True):
            parameter.copy_(value)
        assert torch.allclose(net(inputs), module(inputs), atol=1e-13)
    assert (net.width, net.depth, net.outputs) == (12, 2, 2)
    assert len(net.activations(inputs)) == 3
    moved = net.moved(torch.ones_like(net.hidden))
    assert torch.equal(moved.hidden, net.hidden + 1)


def test_variances_of_the_start():
    """A and W have 2/m (or scale/m), B has 1/d: 40 000 draws have a relative error of √2/200."""
    net = network(200, 1, 4)
    assert float(net.hidden.var()) * 200 == pytest.approx(2, rel=0.03)
    assert float(network(200, 1, scale=0.5).hidden.var()) * 200 == pytest.approx(0.5, rel=0.03)
    many = wide.draw(2000, 1, 30, 30, torch.Generator().manual_seed(1))
    assert float(many.first.var()) * 2000 == pytest.approx(2, rel=0.03)
    assert float(many.last.var()) * 30 == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize(("width", "layers", "scale"), [(8, 1, 2.0), (8, 3, 2.0), (20, 4, 1.0), (20, 3, 3.0)])
def test_moments_of_the_norm_against_sampling(width, layers, scale):
    """20 000 random starts; four standard errors."""
    random = np.random.default_rng(layers)
    h = np.zeros((20_000, width))
    h[:, 0] = 1.0
    for _ in range(layers):
        # rows of W are independent of h, so that given ‖h‖ the pre-activations are independent normals
        norms = np.linalg.norm(h, axis=1, keepdims=True)
        h = np.maximum(0, random.normal(size=h.shape) * math.sqrt(scale / width) * norms)
    squares = (h**2).sum(1)
    mean, variance = wide.squared_norm_moments(width, layers, scale)
    assert abs(squares.mean() - mean) < 4 * squares.std() / math.sqrt(len(squares))
    spread = (squares - squares.mean()) ** 2
    assert abs(spread.mean() - variance) < 4 * spread.std() / math.sqrt(len(squares))


def test_moments_hold_for_the_network_itself():
    values = []
    for seed in range(400):
        net = network(16, 2, seed=seed)
        values.append(float(net.activations(problem(1)[0])[-1].square().sum()))
    mean, variance = wide.squared_norm_moments(16, 3)
    assert abs(np.mean(values) - mean) < 4 * math.sqrt(variance / 400)


def test_separation_by_brute_force():
    inputs, _ = problem()
    pairs = [float((a - b).norm()) for i, a in enumerate(inputs) for b in inputs[:i]]
    assert wide.separation(inputs) == pytest.approx(min(pairs), rel=1e-12)


def test_gradient_by_finite_differences():
    net, (inputs, targets) = network(), problem()
    value, slope = wide.gradient(net, inputs, targets)
    assert value == pytest.approx(float(wide.loss(net, inputs, targets)))
    change = torch.randn(net.hidden.shape, generator=torch.Generator().manual_seed(3)).double()
    step = 1e-7
    up, down = (float(wide.loss(net.moved(s * step * change), inputs, targets)) for s in (1, -1))
    assert float((slope * change).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_kernel_from_one_gradient_at_a_time():
    net, (inputs, _) = network(), problem()
    rows = []
    for i in range(len(inputs)):
        for k in range(2):
            hidden = net.hidden.clone().requires_grad_()
            output = wide.Network(net.first, hidden, net.last)(inputs)[i, k]
            rows.append(torch.autograd.grad(output, hidden)[0].flatten())
    jacobian = torch.stack(rows)
    assert torch.allclose(wide.tangent_kernel(net, inputs), jacobian @ jacobian.T, atol=1e-10)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000))
def test_the_gradient_lies_between_its_bounds(seed):
    """For any targets, by autograd; and the bounds are attained at eigenvectors."""
    net, (inputs, targets) = network(seed=seed), problem(4, seed=seed)
    kernel = wide.tangent_kernel(net, inputs)
    low, high = wide.gradient_bounds(kernel)
    value, slope = wide.gradient(net, inputs, targets)
    square = float(slope.square().sum())
    assert low * value * (1 - 1e-9) <= square <= high * value * (1 + 1e-9)
    vectors = torch.linalg.eigh(kernel)[1]
    value, slope = wide.gradient(net, inputs, net(inputs) - vectors[:, -1].view(4, 2))
    assert float(slope.square().sum()) == pytest.approx(high * value, rel=1e-8)


def test_bounds_of_the_theorem_by_hand():
    assert wide.theorem_gradient_bounds(10, 100, 3, 2, 0.5) == pytest.approx((0.25, 1500))
    assert wide.theorem_gradient_bounds(20, 100, 3, 2, 0.5) == pytest.approx((0.0625, 3000))
    assert wide.theorem_gradient_bounds(10, 50, 6, 1, 0.2) == pytest.approx((0.1, 3000))


def test_descent_is_torch_sgd():
    net, (inputs, targets) = network(), problem()
    hidden = net.hidden.clone().requires_grad_()
    optimizer = torch.optim.SGD([hidden], 0.003)
    for _ in range(20):
        optimizer.zero_grad()
        wide.loss(wide.Network(net.first, hidden, net.last), inputs, targets).backward()
        optimizer.step()
    end, losses = wide.descend(net, inputs, targets, 0.003, 20)
    assert torch.allclose(end.hidden, hidden.detach(), atol=1e-12)
    assert len(losses) == 21
    assert losses[-1] == pytest.approx(float(wide.loss(end, inputs, targets)))
    assert wide.descend(net, inputs, targets, 0.003, 20, until=losses[7])[1] == losses[:8]
    assert len(wide.descend(net, inputs, targets, 1e160, 500)[1]) < 5


def test_predicted_losses_of_a_linear_model():
    """With residuals that follow r ← (I − 2ηK) r exactly."""
    kernel = torch.diag(torch.tensor([0.1, 1.0, 2.0]).double())
    residuals = torch.tensor([1.0, -2.0, 0.5]).double()
    predicted = wide.predicted_losses(kernel, residuals, 0.2, 5)
    for value in predicted:
        assert value == pytest.approx(float(residuals.square().sum()), rel=1e-12)
        residuals = residuals - 2 * 0.2 * kernel @ residuals
    assert len(predicted) == 6


def test_excess_over_the_tangent():
    """By hand from three losses; and 0 to first order."""
    net, (inputs, targets) = network(), problem()
    change = 1e-6 * torch.randn(net.hidden.shape, generator=torch.Generator().manual_seed(3)).double()
    excess = [wide.semi_smooth_excess(net, factor * change, inputs, targets) for factor in (1, 10)]
    assert excess[1] / excess[0] == pytest.approx(100, rel=0.01)
    slope = (wide.gradient(net, inputs, targets)[1] * change).sum()
    by_hand = wide.loss(net.moved(change), inputs, targets) - wide.loss(net, inputs, targets) - slope
    assert excess[0] == pytest.approx(float(by_hand), abs=1e-15)


def test_semi_smooth_bound_by_hand():
    first = 9 * math.sqrt(5 * 7 * math.log(7) / 2) * 0.1 * math.sqrt(4)
    assert wide.semi_smooth_bound(4.0, 0.1, 5, 7, 3, 2) == pytest.approx(first + 5 * 9 * 7 / 2 * 0.01)
    flat = 9 * math.sqrt(5 * math.log(7) / 2) * 0.1 * math.sqrt(4)
    assert wide.semi_smooth_bound(4.0, 0.1, 5, 7, 3, 2, 0) == pytest.approx(flat + 5 * 9 / 2 * 0.01)


def test_required_width():
    assert math.exp(wide.log_required_width(3, 2, 0.5)) == pytest.approx(3**24 * 2**12 * 2**8, rel=1e-10)
    assert wide.log_required_width(10**15, 100, 1e-3) > 709  # more than a float64 can hold


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4096), st.integers(1, 20))
def test_smallest_width_is_found(answer, least):
    asked = []

    def is_enough(width):
        asked.append(width)
        return width >= answer

    assert wide.smallest_width(is_enough, least, most=10_000) == max(answer, least)
    assert len(asked) <= 2 * math.log2(2 * answer + 2) + 3


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: network(0), "width must be at least 1, got 0"),
        (lambda: network(depth=0), "depth must be at least 1, got 0"),
        (lambda: network(scale=0.0), "scale must be positive"),
        (lambda: wide.squared_norm_moments(0, 1), "width must be at least 1 and layers"),
        (lambda: wide.separation(problem(1)[0]), "at least two examples are needed, got 1"),
        (lambda: wide.loss(network(), problem()[0], problem(3)[1]), r"outputs' shape \(6, 2\), got \(3, 2\)"),
        (lambda: wide.descend(network(), *problem(), 0.0, 3), "lr must be positive"),
        (lambda: wide.semi_smooth_bound(1, 1, 1, 1, 1, 1), "width must be at least 2"),
        (lambda: wide.log_required_width(0, 1, 1), "must be at least 1, got 0 and 1"),
        (lambda: wide.log_required_width(5, 1, 0.0), "distance above 0, got 0; remove doubles"),
        (lambda: wide.smallest_width(lambda width: False, most=16), "no width up to 16 is enough"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
