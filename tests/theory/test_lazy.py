"""Lazy training against autograd, homogeneity, and kernel regression."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import jacrev

from apoint.errors import UsageError
from apoint.theory import lazy


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(count=12, inputs=4):
    points = lazy.sphere(count, inputs, random(1))
    return points, lazy.teacher(3, inputs, random(2))(points)


def start(scale=1.0, seed=0):
    return lazy.symmetrised(10, 4, scale, random(seed))


def test_the_start_is_symmetric():
    """f = 0 to the last bit of a sum, at any scale; weights have the deviation asked for."""
    for scale in (0.01, 1.0, 30.0):
        assert float(start(scale)(problem()[0]).abs().max()) < 1e-12 * scale**2
    many = lazy.symmetrised(400, 50, 3.0, random())
    assert float(many.directions.std()) == pytest.approx(3, rel=0.05)
    assert float(many.slopes.std()) == pytest.approx(3, rel=0.2)
    assert lazy.symmetrised(4, 3, 1.0, random(), torch.float32).slopes.dtype == torch.float32


def test_teacher_and_sphere():
    points = lazy.sphere(2000, 3, random())
    assert torch.allclose(points.norm(dim=1), torch.ones(2000).double())
    assert float(points.mean(0).abs().max()) < 4 / math.sqrt(3 * 2000)
    made = lazy.teacher(5, 3, random())
    assert torch.equal(made.slopes.abs(), torch.ones(5).double())
    assert torch.allclose(made.directions.norm(dim=1), torch.ones(5).double())
    assert lazy.teacher(5, 3, random(), torch.float32).directions.dtype == torch.float32
    by_hand = sum(
        a * max(0.0, float(w @ points[0])) for a, w in zip(made.slopes, made.directions, strict=True)
    )
    assert float(made(points)[0]) == pytest.approx(float(by_hand))


@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_training_is_autograd(alpha):
    inputs, targets = problem()
    begin = start()
    slopes, directions = (t.clone().requires_grad_() for t in (begin.slopes, begin.directions))
    optimizer = torch.optim.SGD([slopes, directions], 0.05)
    for _ in range(15):
        optimizer.zero_grad()
        errors = alpha * lazy.outputs(slopes, directions, inputs) - targets
        (errors.square().mean() / alpha**2).backward()
        optimizer.step()
    end = lazy.train(begin, inputs, targets, 0.05, 15, alpha)
    assert torch.allclose(end.slopes, slopes.detach(), atol=1e-12)
    assert torch.allclose(end.directions, directions.detach(), atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 5.0), st.integers(0, 100))
def test_a_scaled_start_is_a_scaled_output(scale, seed):
    """Descent from τθ₀ goes τ times where descent on L(αf)/α² from θ₀ goes, with α = τ² and step ητ²."""
    inputs, targets = problem()
    begin, lr = start(seed=seed), 0.02 / max(1.0, scale) ** 4  # small enough not to diverge
    scaled = lazy.train(begin.scaled(scale), inputs, targets, lr, 10)
    alpha = lazy.alpha_of(scale)
    other = lazy.train(begin, inputs, targets, lr * scale**2, 10, alpha).scaled(scale)
    assert torch.allclose(scaled.directions, other.directions, atol=1e-10 * (1 + scaled.norm))
    assert torch.allclose(scaled(inputs), alpha * other.scaled(1 / scale)(inputs), atol=1e-9)


def test_alpha_and_step():
    assert lazy.alpha_of(3.0) == pytest.approx(9)
    assert lazy.alpha_of(3.0, degree=3) == pytest.approx(27)
    assert lazy.safe_step(1.0) == pytest.approx(0.1)
    assert lazy.safe_step(0.001) == 10


def test_the_tangent_is_the_jacobian():
    inputs, _ = problem()
    begin, other = start(), start(seed=5)
    by_slopes, by_directions = jacrev(lazy.outputs, argnums=(0, 1))(begin.slopes, begin.directions, inputs)
    change = other.minus(begin)
    expected = begin(inputs) + by_slopes @ change.slopes
    expected = expected + (by_directions * change.directions).sum((1, 2))
    assert torch.allclose(lazy.linearised_outputs(begin, other, inputs), expected, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 4.0])
def test_linearised_training_is_kernel_descent(alpha):
    """Residuals of a linear model follow r ← (I − (2η/n) K) r exactly."""
    inputs, targets = problem()
    begin, lr = start(), 0.05
    by_slopes, by_directions = jacrev(lazy.outputs, argnums=(0, 1))(begin.slopes, begin.directions, inputs)
    jacobian = torch.cat([by_slopes, by_directions.flatten(1)], 1)
    residuals = alpha * begin(inputs) - targets
    for _ in range(30):
        residuals = residuals - 2 * lr / len(inputs) * jacobian @ (jacobian.T @ residuals)
    end = lazy.train_linearised(begin, inputs, targets, lr, 30, alpha)
    reached = alpha * lazy.linearised_outputs(begin, end, inputs) - targets
    assert torch.allclose(reached, residuals, atol=1e-11)


def test_a_large_alpha_is_lazy():
    """Movement falls as 1/α; so does the distance from the tangent, once no neuron crosses its kink."""
    inputs, targets = problem()
    fresh = lazy.sphere(50, 4, random(9))
    movements, gaps = [], []
    for alpha in (10.0, 10_000.0):
        end = lazy.train(start(), inputs, targets, 0.05, 200, alpha)
        tangent = lazy.train_linearised(start(), inputs, targets, 0.05, 200, alpha)
        difference = end(fresh) - lazy.linearised_outputs(start(), tangent, fresh)
        movements.append(lazy.relative_movement(start(), end))
        gaps.append(alpha * float(difference.norm()))
    assert movements[0] / movements[1] == pytest.approx(1000, rel=0.1)
    assert gaps[0] / gaps[1] > 100


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lazy.symmetrised(3, 4, 1.0, random()), "width must be even and at least 2.*got 3"),
        (lambda: lazy.symmetrised(4, 4, 0.0, random()), "scale must be positive and finite, got 0"),
        (lambda: lazy.alpha_of(-1.0), "scale must be positive"),
        (lambda: lazy.safe_step(math.inf), "scale must be positive and finite, got inf"),
        (lambda: lazy.train(start(), *problem(), 0.0, 3), "lr must be positive"),
        (lambda: lazy.train_linearised(start(), *problem(), 0.1, 3, 0.0), "alpha must be positive"),
        (lambda: lazy.train(start(), problem(12, 5)[0], problem()[1], 0.1, 3), "rows of 4 numbers"),
        (lambda: lazy.train(start(), problem()[0], problem(5)[1], 0.1, 3), "each of 12 examples"),
        (
            lambda: lazy.relative_movement(start().scaled(0.0), start()),
            "the start has norm 0",
        ),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
