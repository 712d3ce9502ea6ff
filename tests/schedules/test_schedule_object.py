"""The schedule itself: what it accepts, how it prints, and what holds at the end of training."""

from __future__ import annotations

import dataclasses

import pytest

from apoint import schedules
from apoint.errors import UsageError
from apoint.registry import _REGISTRIES, registry
from apoint.schedules import Schedule
from apoint.schedules.phases import Phase, blend, follow, half_cosine, square_root, straight
from apoint.units import Horizon


@pytest.mark.parametrize("progress", [-0.01, 1.01, float("nan"), float("inf"), 5])
def test_progress_outside_of_training_is_refused(progress: float) -> None:
    with pytest.raises(
        UsageError, match=r"cosine\(floor=0.1\): progress must be between 0 and 1, got .* k / T"
    ):
        schedules.cosine(floor=0.1)(progress)


def test_rounding_at_the_ends_is_forgiven() -> None:
    schedule = schedules.linear(start=1.0, end=3.0)
    assert schedule(1 + 1e-15) == schedule(1.0) == 3.0
    assert schedule(-1e-15) == schedule(0) == 1.0


def test_values_are_those_at_each_step() -> None:
    assert schedules.linear(start=1.0, end=0.0).values(4) == [1.0, 0.75, 0.5, 0.25]
    with pytest.raises(UsageError, match="num_steps must be at least 1, got 0"):
        schedules.linear().values(0)


def test_prints_as_the_call_that_made_it() -> None:
    assert repr(schedules.cosine(peak=1, warmup=0.05, floor=0.1)) == "cosine(floor=0.1, warmup='5%')"
    assert repr(schedules.cosine_restarts(cycle=[0.5, "25%"], peak=[2, 1])) == (
        "cosine_restarts(peak=[2.0, 1.0], cycle=['50%', '25%'])"
    )
    assert (
        repr(schedules.piecewise(points=[(0, 1), ("50%", 2)]))
        == "piecewise(points=[['0%', 1.0], ['50%', 2.0]])"
    )
    assert repr(Schedule(lambda p: p)) == "Schedule(…)"


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedules.constant().curve = lambda p: 0.0  # type: ignore[misc]


def test_a_schedule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry("schedule")
    monkeypatch.setitem(_REGISTRIES, "schedule", type(known)("schedule"))

    @schedules.register_schedule("square")
    def square(horizon: Horizon | None = None, *, scale: float = 1.0) -> Schedule:
        """The square of progress, scaled.

        Args:
            scale: The factor.
        """
        return Schedule(lambda p: scale * p * p)

    assert square(scale=2)(0.5) == registry("schedule").build({"name": "square", "scale": 2})(0.5) == 0.5
    assert repr(square(scale=2)) == "square(scale=2.0)"
    with pytest.raises(UsageError, match="schedule 'square': scale must be a number, got 'x'"):
        square(scale="x")  # type: ignore[arg-type]


def test_public_contract() -> None:
    rate = schedules.cosine(peak=1.0, warmup=0.05, floor=0.1)
    assert [rate(p) for p in (0.0, 0.025, 0.05, 1.0)] == [0.0, 0.5, 1.0, 0.1]
    assert rate(0.525) == pytest.approx(0.55)


def test_the_end_of_training_is_the_end_of_the_last_cycle() -> None:
    assert schedules.cosine_restarts(floor=0.1, cycle=0.25)(1.0) == 0.1
    assert schedules.cosine_restarts(floor=0.1, cycle=1 / 3)(1.0) == 0.1
    assert schedules.cosine_restarts(floor=0.1, cycle=[0.3, 0.7])(1.0) == 0.1
    assert schedules.triangular(low=0.1, num_cycles=3)(1.0) == pytest.approx(0.1, abs=1e-9)


def test_a_window_to_the_end_contains_the_end() -> None:
    assert schedules.window(begin=0.5)(1.0) == 1.0
    assert schedules.window(begin=0.5, end=0.9)(1.0) == 0.0


def test_early_and_late_are_windows() -> None:
    horizon = Horizon(total_steps=50, steps_per_epoch=10)
    early = schedules.window(horizon, value=0.1, end="2 epochs")
    late = schedules.window(horizon, value=0.4, begin="2 epochs")
    assert early.values(50) == [0.1] * 20 + [0.0] * 30
    assert late.values(50) == [0.0] * 20 + [0.4] * 30


def test_blend_keeps_its_ends_exactly() -> None:
    first, last = 0.1, 0.7
    assert blend(first, last, 0.0) == first
    assert blend(first, last, 1.0) == last
    assert blend(1e308, -1e308, 0.5) == 0.0
    assert blend(first, last, 1.0 + 1e-9) == last


@pytest.mark.parametrize("shape", [straight, half_cosine, square_root])
def test_shapes_go_from_nothing_to_all(shape) -> None:
    assert shape(0.0) == 0.0
    assert shape(1.0) == 1.0


def test_phases_of_no_length_are_skipped() -> None:
    curve = follow([Phase(0.0, 9.0, 9.0), Phase(0.5, 1.0, 2.0), Phase(0.5, 9.0, 9.0), Phase(1.0, 3.0, 4.0)])
    assert [curve(p) for p in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.5, 3.0, 3.5, 4.0]
