"""Every rule that PyTorch has equals it, pure and as an optimizer, over 50 steps in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import apoint.optim
from apoint.optim import RuleOptimizer
from apoint.registry import registry
from tests.optim.cases import (
    CASES,
    WITHOUT_COUNTERPART,
    Case,
    configured,
    optimizer_path,
    problem,
    rule_path,
)

# The arithmetic is ordered differently: 50 steps of a few roundings of 1e-16 on numbers of size 1, and Adam's
# division by a root makes at most 1e3 of them. 1e-10 leaves a margin and would show any wrong formula.
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(autouse=True)
def _torch_counts_in_float64() -> Iterator[None]:
    """PyTorch keeps NAdam's product of momenta in the default dtype, whatever the parameters'."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pure_rule_equals_torch(case: Case) -> None:
    of = problem(3, 4)
    ours = rule_path(configured(case.name, **case.settings), of)
    theirs = optimizer_path(case.counterpart, of)
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True), 1):
        torch.testing.assert_close(
            mine, other, msg=lambda text, step=step: f"step {step}: {text}", **TOLERANCE
        )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optimizer_equals_torch(case: Case) -> None:
    of = problem(5, seed=1)
    ours = optimizer_path(lambda params: optimizer_class(case.name)(params, **case.settings), of)
    theirs = optimizer_path(case.counterpart, of)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, **TOLERANCE)


def optimizer_class(name: str) -> type[RuleOptimizer]:
    public = [getattr(apoint.optim, key) for key in apoint.optim.__all__]
    classes = [one for one in public if isinstance(one, type) and issubclass(one, RuleOptimizer)]
    return next(one for one in classes if one is not RuleOptimizer and one.rule.name == name)


def test_each_rule_has_a_reference() -> None:
    """A rule is compared with PyTorch or, where PyTorch has none, with a slow reference."""
    assert {case.name for case in CASES} | set(WITHOUT_COUNTERPART) == set(registry("optimizer"))
    assert len(registry("optimizer")) >= 15


def test_scheduled_momentum_equals_torch_with_a_changing_group() -> None:
    """Course F11: Nesterov's momentum grows during training."""
    of = problem(6)
    param, chosen = of.start, configured("nesterov", form="sum", lr=0.02)
    state = chosen.rule.init(param)
    other = of.start.clone().requires_grad_()
    torch_optimizer = torch.optim.SGD([other], lr=0.02, momentum=0.5, nesterov=True)
    for step in range(1, 31):
        momentum = 1 - 3 / (5 + step)
        hyper = {**chosen.hyper, "momentum": momentum}
        delta, state = chosen.rule.step(of.gradient(param, step), state, param, step, hyper)
        param = param + delta
        torch_optimizer.param_groups[0]["momentum"] = momentum
        other.grad = of.gradient(other.detach(), step)
        torch_optimizer.step()
        torch.testing.assert_close(param, other.detach(), **TOLERANCE)


def test_first_three_steps_of_lion_by_hand() -> None:
    """Mixed signs and uneven sizes, so that wrong betas or plain sign descent give other numbers."""
    chosen = configured("lion", lr=0.5, beta1=0.5, beta2=0.75, weight_decay=0.1)
    param = torch.tensor([1.0, -2.0], dtype=torch.float64)
    state = chosen.rule.init(param)
    for step, gradient, expected in (
        (1, [4.0, -1.0], [0.45, -1.4]),  # blend (2, -0.5), momentum (1, -0.25)
        (2, [-0.5, 8.0], [-0.0725, -1.83]),  # blend (0.25, 3.875), momentum (0.625, 1.8125)
        (3, [-2.0, -1.0], [0.431125, -2.2385]),  # blend (-0.6875, 0.40625)
    ):
        gradient_2 = torch.tensor(gradient, dtype=torch.float64)
        delta, state = chosen.rule.step(gradient_2, state, param, step, chosen.hyper)
        param = param + delta
        torch.testing.assert_close(param, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
