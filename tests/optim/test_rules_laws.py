"""Laws that hold for any gradient: symmetries, sizes of steps, what an accumulator can and cannot do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from apoint.registry import registry
from tests.optim.cases import VARIANTS, Problem, configured, label, problem, rule_path

NAMES = list(registry("optimizer"))
sizes = st.floats(1e-6, 1e6)
signed = st.builds(lambda size, negative: -size if negative else size, sizes, st.booleans())
decays = st.floats(0, 0.999)
law = settings(deadline=None, max_examples=50)


def one_step(name: str, gradient: float, **chosen: Any) -> float:
    made = configured(name, **chosen)
    param = torch.zeros(1, dtype=torch.float64)
    gradient_1 = torch.tensor([gradient], dtype=torch.float64)
    return float(made.rule.step(gradient_1, made.rule.init(param), param, 1, made.hyper)[0])


@law
@given(signed, st.floats(1e-5, 1.0), decays, decays, st.floats(0, 1.0))
def test_first_step_of_adam_is_lr_up_to_eps(
    g: float, lr: float, beta1: float, beta2: float, eps: float
) -> None:
    """The correction for the start makes both averages exact at once: η·g/(|g| + ε), whatever the betas."""
    for name in ("adam", "amsgrad"):
        step = one_step(name, g, lr=lr, beta1=beta1, beta2=beta2, eps=eps)
        # 1 - 0.999 keeps 13 digits
        assert step == pytest.approx(-lr * g / (abs(g) + eps), rel=1e-11)


@law
@given(signed, st.floats(1e-5, 1.0), decays, decays)
def test_lion_and_signum_move_by_lr_exactly(g: float, lr: float, beta1: float, beta2: float) -> None:
    assert one_step("lion", g, lr=lr, beta1=beta1, beta2=beta2) == -math.copysign(lr, g)
    assert one_step("signum", g, lr=lr, beta=beta1) == -math.copysign(lr, g)


@law
@given(signed, st.floats(1e-5, 1.0))
def test_first_step_of_rules_that_scale_all_alike_is_lr_times_gradient(g: float, lr: float) -> None:
    for name, extra in (("sgd", {}), ("gradient-descent", {}), ("momentum", {"form": "sum"})):
        assert one_step(name, g, lr=lr, **extra) == pytest.approx(-lr * g, rel=1e-14)
    assert one_step("momentum", g, lr=lr, momentum=0.9) == pytest.approx(-lr * g * 0.1, rel=1e-12)
    assert one_step("nesterov", g, lr=lr, momentum=0.9) == pytest.approx(-lr * g * 0.19, rel=1e-12)


def mirrored(of: Problem) -> Problem:
    return Problem(-of.start, -of.target, of.curvature, -of.noise)


@pytest.mark.parametrize(("name", "chosen"), VARIANTS, ids=label)
def test_mirrored_problem_gives_mirrored_path(name: str, chosen: dict[str, Any]) -> None:
    """No rule prefers a sign: every operation is odd in (gradient, parameter, averages of them)."""
    of, made = problem(8, seed=5), configured(name, **chosen)
    for left, right in zip(rule_path(made, of, 20), rule_path(made, mirrored(of), 20), strict=True):
        assert torch.equal(left, -right)


SCALE_FREE = {
    "adagrad": {"eps": 0.0},
    "rmsprop": {"eps": 0.0, "centered": True, "momentum": 0.5},
    **{key: {"eps": 0.0} for key in ("adam", "adamw", "amsgrad", "adamax", "nadam", "adabelief")},
    "lion": {},
    "signum": {},
}
PROPORTIONAL = {"sgd": {}, "gradient-descent": {}, "momentum": {}, "nesterov": {}}
NEITHER = {"radam", "adadelta", "lookahead"}  # RAdam begins proportional and ends free; AdaDelta needs its ε


def free_steps(name: str, chosen: dict[str, Any], factor: float) -> Tensor:
    """The path from 0 under gradients that do not depend on the parameter, times a factor."""
    made = configured(name, **chosen)
    generator = torch.Generator().manual_seed(6)
    param = torch.zeros(10, dtype=torch.float64)
    state = made.rule.init(param)
    for step in range(1, 13):
        gradient = factor * torch.randn(10, generator=generator, dtype=torch.float64)
        delta, state = made.rule.step(gradient, state, param, step, {**made.hyper, "weight_decay": 0.0})
        param = param + delta
    return param


@law
@given(st.floats(1e-4, 1e4))
def test_scale_of_the_loss(factor: float) -> None:
    for name, chosen in SCALE_FREE.items():
        expected = free_steps(name, chosen, 1.0)
        torch.testing.assert_close(free_steps(name, chosen, factor), expected, rtol=1e-9, atol=1e-12)
    for name, chosen in PROPORTIONAL.items():
        expected = factor * free_steps(name, chosen, 1.0)
        torch.testing.assert_close(free_steps(name, chosen, factor), expected, rtol=1e-9, atol=0)


def test_each_rule_is_sorted_by_what_the_scale_of_the_loss_does() -> None:
    assert set(SCALE_FREE) | set(PROPORTIONAL) | NEITHER == set(NAMES)


@law
@given(st.lists(signed, min_size=2, max_size=20))
def test_accumulators_that_never_fall(gradients: list[float]) -> None:
    """Course I3 and I4: AdaGrad's sum and AMSGrad's maximum never fall, RMSProp's average can."""
    param = torch.zeros(1, dtype=torch.float64)
    for name, slot in (("adagrad", "square_sum"), ("amsgrad", "largest")):
        made = configured(name)
        state, before = made.rule.init(param), 0.0
        for step, g in enumerate(gradients, 1):
            _, state = made.rule.step(torch.full_like(param, g), state, param, step, made.hyper)
            assert float(state[slot]) >= before
            before = float(state[slot])


def test_the_average_of_rmsprop_falls_when_gradients_do() -> None:
    made = configured("rmsprop", alpha=0.9)
    param = torch.zeros(1)
    _, high = made.rule.step(torch.tensor([10.0]), made.rule.init(param), param, 1, made.hyper)
    _, low = made.rule.step(torch.tensor([0.1]), high, param, 2, made.hyper)
    assert float(low["square"]) < float(high["square"])


@law
@given(sizes, st.floats(0.5, 0.95), st.floats(0.96, 0.999))
def test_a_rare_gradient_takes_adam_beyond_lr(g: float, beta1: float, beta2: float) -> None:
    """Course I6: after long silence one gradient moves by η·(1 − β1)/√(1 − β2), which may exceed η."""
    made = configured("adam", lr=1.0, beta1=beta1, beta2=beta2, eps=0.0)
    param = torch.zeros(1, dtype=torch.float64)
    gradient = torch.full_like(param, g)
    delta, _ = made.rule.step(gradient, made.rule.init(param), param, 10**6, made.hyper)
    assert -float(delta) == pytest.approx((1 - beta1) / math.sqrt(1 - beta2), rel=1e-9)


@law
@given(st.lists(signed, min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_an_average_velocity_stays_within_the_gradients(gradients: list[float], gamma: float) -> None:
    """The course's form keeps the meaning of the rate: no step exceeds η times the largest gradient."""
    made = configured("momentum", lr=1.0, momentum=gamma)
    param = torch.zeros(1, dtype=torch.float64)
    state = made.rule.init(param)
    for step, g in enumerate(gradients, 1):
        delta, state = made.rule.step(torch.full_like(param, g), state, param, step, made.hyper)
        assert abs(float(delta)) <= max(map(abs, gradients)) * (1 + 1e-12)


def test_l2_and_decoupled_decay_are_the_same_for_plain_descent_only() -> None:
    """Course I7: with momentum or adaptivity the penalty passes through the averages."""
    of = problem(6, seed=7)
    for name in NAMES:
        penalty = torch.stack(list(rule_path(configured(name, lr=0.05, l2=0.3, weight_decay=0.0), of, 10)))
        decay = torch.stack(list(rule_path(configured(name, lr=0.05, weight_decay=0.3), of, 10)))
        same = torch.allclose(penalty, decay, rtol=1e-9, atol=1e-12)
        assert same == (name in ("sgd", "gradient-descent")), name


@law
@given(st.floats(0.05, 1.0), st.integers(1, 6))
def test_lookahead_with_alpha_one_is_its_base(lr: float, every: int) -> None:
    of = problem(4, seed=8)
    around = rule_path(configured("lookahead", base="momentum", lr=lr, every=every, alpha=1.0), of, 12)
    for left, right in zip(around, rule_path(configured("momentum", lr=lr), of, 12), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
