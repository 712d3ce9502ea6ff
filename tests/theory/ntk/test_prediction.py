"""Training with a fixed kernel: against small steps of gradient descent, and solving equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.theory import ntk
from apoint.theory.linearise import linearise


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def setting() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features of training and new points, targets, and the first parameters of a linear model."""
    return draws(6, 9), draws(4, 9, seed=1), draws(6, 2, seed=2), draws(9, 2, seed=3)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_the_closed_form_is_where_small_steps_lead(ridge: float) -> None:
    X, x, y, theta = setting()
    fitted = ntk.fit(X @ X.T, y, ridge)
    start, moved, time, steps = X @ theta, theta.clone(), 0.3, 30_000
    for _ in range(steps):
        moved = moved - time / steps * (X.T @ (X @ moved - y) + ridge * (moved - theta))
    # Euler's rule is off by its step times the largest eigenvalue squared and the time, about 1e-3
    torch.testing.assert_close(fitted.at(time=time, start=start), X @ moved, rtol=0, atol=2e-3)
    torch.testing.assert_close(fitted.at(x @ X.T, time, start, x @ theta), x @ moved, rtol=0, atol=2e-3)


@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_the_end_is_kernel_regression(ridge: float) -> None:
    X, x, y, _ = setting()
    kernel, cross = X @ X.T, x @ X.T
    fitted = ntk.fit(kernel, y[:, 0], ridge)
    solved = torch.linalg.solve(kernel + ridge * torch.eye(6, dtype=torch.float64), y[:, 0])
    torch.testing.assert_close(fitted.at(cross), cross @ solved)
    torch.testing.assert_close(fitted.at(cross, 1e6), cross @ solved)
    torch.testing.assert_close(fitted.at(), kernel @ solved)
    torch.testing.assert_close(fitted.at(cross, 0.0), torch.zeros(4, dtype=torch.float64))
    assert fitted.jitter == 0
    assert fitted.smallest_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(kernel)[0]))


def test_a_singular_kernel_gets_a_jitter_that_is_reported() -> None:
    X = draws(6, 3)
    fitted = ntk.fit(X @ X.T, X @ draws(3, seed=5))
    assert fitted.smallest_eigenvalue == pytest.approx(0, abs=1e-12)
    assert 0 < fitted.jitter < 1e-9
    new = draws(4, 3, seed=6)
    torch.testing.assert_close(fitted.at(new @ X.T), new @ draws(3, seed=5), rtol=0, atol=1e-6)
    assert ntk.fit(X @ X.T, X[:, 0], ridge=0.1).jitter == 0
    still = ntk.fit(torch.zeros(3, 3), torch.ones(3))
    assert bool((still.at() == 0).all())
    assert bool((still.at(time=2.0) == 0).all())


def test_single_precision_kernels_never_give_nan() -> None:
    X = draws(200, 3).float()
    fitted = ntk.fit(X @ X.T, X[:, 0])
    assert fitted.jitter > 0
    found = fitted.at()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, X[:, 0], rtol=0, atol=1e-2)


def test_a_linearised_module_follows_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 1)).double().eval()
    model[0].bias.requires_grad_(False)
    x, new, y = draws(5, 3), draws(4, 3, seed=1), draws(5, 1, seed=2)
    kernel, cross = (ntk.empirical(model, one, x, "trace") for one in (x, new))
    tangent, start, first = linearise(model), model(x).detach(), model(new).detach()
    torch.testing.assert_close(tangent(new), first)
    time, steps = 0.5, 400
    optimizer = torch.optim.SGD(tangent.parameters(), time / steps)
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (tangent(x) - y).square().sum()).backward()
        optimizer.step()
    expected = ntk.fit(kernel, y).at(cross, time, start, first)
    assert float((expected - first).abs().max()) > 0.1
    # Euler's rule: of the order of the step times the largest eigenvalue
    torch.testing.assert_close(tangent(new), expected, rtol=0, atol=0.02)


def test_a_linearised_module_is_linear_in_its_parameters() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)).double()
    tangent, x = linearise(model), draws(4, 3)
    assert tangent.names == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert sum(p.numel() for p in tangent.parameters()) == sum(p.numel() for p in model.parameters())
    step = [torch.randn_like(p) for p in tangent.parameters()]

    def at(size: float) -> Tensor:
        with torch.no_grad():
            for p, direction in zip(tangent.displacement, step, strict=True):
                p.copy_(size * direction)
            return tangent(x)

    torch.testing.assert_close(at(3.0) - at(0.0), 3 * (at(1.0) - at(0.0)))
    small, value = 1e-6, at(1e-6)
    with torch.no_grad():
        for p, direction in zip(model.parameters(), step, strict=True):
            p.add_(small * direction)
    # the module itself moves by the same, up to second order; and the copy has not followed it
    torch.testing.assert_close(model(x), value, rtol=0, atol=1e-9)
    with pytest.raises(UsageError, match="needs a module with trainable parameters, and ReLU has none"):
        linearise(nn.ReLU())


def test_a_linearised_module_is_saved_and_moved_like_any_other() -> None:
    torch.manual_seed(0)
    tangent, x = linearise(nn.Linear(3, 2)), torch.randn(4, 3)
    other = linearise(nn.Linear(3, 2))
    other.load_state_dict(tangent.state_dict())
    torch.testing.assert_close(other(x), tangent(x))
    assert tangent.double()(x.double()).dtype == torch.float64


def test_classification() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    centres = 3 * torch.eye(3)[:, :].repeat(1, 2)
    points = centres[labels] + torch.randn(60, 6, generator=generator)
    kernel = ntk.infinite_width(2, bias_variance=0.1)
    found = ntk.classify(
        kernel(points[:45]).ntk, labels[:45], kernel(points[45:], points[:45]).ntk, ridge=0.1
    )
    assert float((found.classes == labels[45:]).float().mean()) >= 0.9
    targets = torch.full((45, 3), -1 / 3)
    targets[torch.arange(45), labels[:45]] = 2 / 3
    expected = ntk.fit(kernel(points[:45]).ntk, targets, 0.1).at(kernel(points[45:], points[:45]).ntk)
    torch.testing.assert_close(found.scores, expected)
    more = ntk.classify(
        kernel(points[:45]).ntk, labels[:45], kernel(points[:1], points[:45]).ntk, 5, time=0.1
    )
    assert more.scores.shape == (1, 5)
    assert float(more.scores.abs().max()) < float(found.scores.abs().max())


def test_what_bad_input_gets() -> None:
    eye = torch.eye(3)
    with pytest.raises(
        UsageError, match=r"must be positive, but its smallest eigenvalue is -1 with 1 the largest"
    ):
        ntk.fit(torch.diag(torch.tensor([1.0, 1.0, -1.0])), torch.ones(3))
    with pytest.raises(UsageError, match=r"square with a row for each target, got \(3, 3\) and 2 targets"):
        ntk.fit(eye, torch.ones(2))
    with pytest.raises(UsageError, match="must be finite, got NaN or infinity"):
        ntk.fit(eye * math.nan, torch.ones(3))
    with pytest.raises(UsageError, match="must be symmetric, but entries differ from their mirror by 1"):
        ntk.fit(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.ones(2))
    with pytest.raises(UsageError, match="ridge must be at least 0 and finite, got -1"):
        ntk.fit(eye, torch.ones(3), -1.0)
    with pytest.raises(UsageError, match="a time of training must be at least 0, got -1"):
        ntk.fit(eye, torch.ones(3)).at(time=-1.0)
    with pytest.raises(UsageError, match=r"cross must have 3 columns, one a training input, got \(2, 2\)"):
        ntk.fit(eye, torch.ones(3)).at(torch.ones(2, 2))
    with pytest.raises(
        UsageError, match=r"whole numbers from 0 on, \[n\], got torch.float32 of shape \(3,\)"
    ):
        ntk.classify(eye, torch.ones(3), eye)
    with pytest.raises(UsageError, match="at least 2 and above every label, got 2 with label 2"):
        ntk.classify(eye, torch.tensor([0, 1, 2]), eye, classes=2)
