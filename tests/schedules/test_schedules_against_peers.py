"""Further comparisons with PyTorch that one trajectory of the table of cases does not hold."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    OneCycleLR,
    PolynomialLR,
)

from apoint import schedules
from apoint.units import Horizon
from tests.schedules.schedule_cases import CASES, HORIZON, TOTAL, one_cycle_scheduler, torch_values

CLOSE = {"rel": 1e-12, "abs": 1e-12}


@pytest.mark.parametrize("total", [1, 2, 7, 97, 1000])
@pytest.mark.parametrize("floor", [0.0, 0.03])
def test_cosine_is_cosine_annealing(total: int, floor: float) -> None:
    expected = torch_values(
        lambda optimizer: CosineAnnealingLR(optimizer, T_max=total, eta_min=floor), 0.3, total
    )
    assert schedules.cosine(peak=0.3, floor=floor).values(total) == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize(("first", "multiplier"), [(10, 1), (10, 2), (7, 3), (1, 2), (97, 1), (33, 1)])
def test_restarts_are_warm_restarts(first: int, multiplier: int) -> None:
    def make(optimizer):
        return CosineAnnealingWarmRestarts(optimizer, T_0=first, T_mult=multiplier, eta_min=0.02)

    schedule = schedules.cosine_restarts(
        Horizon(97, 10), peak=0.3, floor=0.02, cycle=f"{first} steps", multiplier=multiplier
    )
    assert schedule.values(97) == pytest.approx(torch_values(make, 0.3, 97), **CLOSE)


@pytest.mark.parametrize("decay", ["none", "halving", "exponential"])
@pytest.mark.parametrize(("up", "down"), [(10, 10), (4, 13), (1, 1), (50, 30)])
def test_triangular_is_cyclic(decay: str, up: int, down: int) -> None:
    gamma = 0.98 if decay == "exponential" else None

    def make(optimizer):
        mode = {"none": "triangular", "halving": "triangular2", "exponential": "exp_range"}[decay]
        return CyclicLR(optimizer, 0.01, 0.3, up, down, mode=mode, gamma=gamma or 1.0, cycle_momentum=False)

    schedule = schedules.triangular(
        Horizon(97, 10),
        low=0.01,
        high=0.3,
        cycle=f"{up + down} steps",
        rise=up / (up + down),
        decay=decay,
        gamma=gamma and gamma ** (up + down),
    )
    assert schedule.values(97) == pytest.approx(torch_values(make, 0.01, 97), **CLOSE)


@pytest.mark.parametrize("anneal", ["cosine", "linear"])
@pytest.mark.parametrize("num_phases", [2, 3])
def test_one_cycle_up_to_its_last_update(anneal: str, num_phases: int) -> None:
    """PyTorch's last update is at the end of training, so the comparison takes in p = 1."""
    settings = CASES["one-cycle"].base | {"anneal": anneal, "num_phases": num_phases}
    expected = torch_values(one_cycle_scheduler(**settings), 1.0, TOTAL)
    schedule = schedules.one_cycle(HORIZON, **settings)
    assert schedule.values(TOTAL) == pytest.approx(expected, **CLOSE)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = one_cycle_scheduler(**settings)(optimizer)
    for _ in range(TOTAL):
        optimizer.step()
        scheduler.step()
    assert schedule(1.0) == pytest.approx(scheduler.get_last_lr()[0], **CLOSE)


@pytest.mark.parametrize("num_phases", [2, 3])
@pytest.mark.parametrize("anneal", ["cos", "linear"])
def test_momentum_of_one_cycle(num_phases: int, anneal: str) -> None:
    """The momentum dips where the rate peaks: an initial divisor below 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    scheduler = OneCycleLR(
        optimizer,
        max_lr=1.0,
        total_steps=TOTAL + 1,
        pct_start=(17 + 1) / (TOTAL + 1),
        anneal_strategy=anneal,
        base_momentum=0.85,
        max_momentum=0.95,
        three_phase=num_phases == 3,
    )
    expected = []
    for _ in range(TOTAL):
        expected.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step()
    schedule = schedules.one_cycle(
        HORIZON,
        peak=0.85,
        initial_divisor=0.85 / 0.95,
        final_divisor=1.0,
        rise="17 steps",
        anneal="linear" if anneal == "linear" else "cosine",
        num_phases=num_phases,
    )
    assert schedule.values(TOTAL) == pytest.approx(expected, **CLOSE)


def test_linear_decay_is_a_polynomial_of_power_one() -> None:
    expected = torch_values(lambda optimizer: PolynomialLR(optimizer, total_iters=TOTAL, power=1.0), 0.3)
    assert schedules.linear(start=0.3).values(TOTAL) == pytest.approx(expected, **CLOSE)
    assert schedules.warmup_linear(peak=0.3).values(TOTAL) == pytest.approx(expected, **CLOSE)


def test_warm_up_may_start_at_zero() -> None:
    """PyTorch's linear warm-up cannot; a LambdaLR can."""
    rise = LambdaLR
    expected = torch_values(lambda optimizer: rise(optimizer, lambda k: min(k / 13, 1.0)), 0.3, 30)
    for builder in (schedules.cosine, schedules.warmup_linear, schedules.trapezoidal):
        values = builder(HORIZON, peak=0.3, warmup="13 steps", floor=0.3).values(TOTAL)
        assert values[:30] == pytest.approx(expected, **CLOSE)


def test_noam_at_the_size_of_the_paper() -> None:
    """d = 512, 4000 of 100 000 steps: the peak is 6.99e-4, the first update a 4000th of it."""
    schedule = schedules.noam(Horizon(100_000, 1000))
    assert schedule(3999 / 100_000) == pytest.approx(6.987712429686844e-4, rel=1e-12)
    assert schedule(0.0) == pytest.approx(6.987712429686844e-4 / 4000, rel=1e-12)
    assert schedule(15_999 / 100_000) == pytest.approx(6.987712429686844e-4 / 2, rel=1e-12)


def test_noam_without_warm_up_is_a_root() -> None:
    values = schedules.noam(HORIZON, warmup=0, model_dim=16).values(TOTAL)
    assert values == pytest.approx([0.25 / (k + 1) ** 0.5 for k in range(TOTAL)], **CLOSE)


def test_nesterov_momentum_of_the_paper() -> None:
    """Stairs of 250 updates: 1/2, 3/4, 5/6, 7/8, …, never above the largest."""
    schedule = schedules.nesterov_momentum(Horizon(10_000, 100), interval="250 steps", ceiling=0.98)
    stairs = [schedule(k / 10_000) for k in (0, 249, 250, 500, 750, 5999, 6000, 9999)]
    assert stairs == pytest.approx([1 / 2, 1 / 2, 3 / 4, 5 / 6, 7 / 8, 47 / 48, 0.98, 0.98], **CLOSE)


def test_early_dropout_that_falls_in_a_line() -> None:
    """As published: evenly from p to 0 over the first epochs, then 0."""
    horizon = Horizon(300, 10)
    values = schedules.linear(horizon, start=0.1, end=0.0, length="5 epochs").values(300)
    expected = torch.linspace(0.1, 0.0, 51, dtype=torch.float64).tolist() + [0.0] * 249
    assert values == pytest.approx(expected, **CLOSE)


def test_default_stairs_are_those_of_residual_networks() -> None:
    """32k and 48k of 64k updates."""
    values = schedules.step(start=0.1).values(64)
    assert values == pytest.approx([0.1] * 32 + [0.01] * 16 + [0.001] * 16, **CLOSE)


def test_robbins_and_monro() -> None:
    """With power 1 and a time scale of one step the steps are 1, 1/2, 1/3, …"""
    values = schedules.inverse_root(HORIZON, warmup=0, timescale="1 step", power=1.0).values(TOTAL)
    assert values == pytest.approx([1 / (k + 1) for k in range(TOTAL)], **CLOSE)


def test_longer_than_training() -> None:
    """A cosine of twice the length of training is the first half of one."""
    once = schedules.cosine(peak=1.0, floor=0.1).values(2 * TOTAL)
    assert schedules.cosine(peak=1.0, floor=0.1, stretch=2.0).values(TOTAL) == pytest.approx(
        once[:TOTAL], **CLOSE
    )
