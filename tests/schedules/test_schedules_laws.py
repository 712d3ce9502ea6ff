"""Laws: bounds are never left, lines do not break, jumps come at their step, whatever the settings."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apoint import schedules
from apoint.units import Duration, Horizon

QUICK = settings(deadline=None, max_examples=50)
progress = st.floats(0, 1)
value = st.floats(-1e3, 1e3)
shares = st.lists(progress, min_size=2, max_size=2).map(sorted)
SHORTEST = 0.05  # of the phases drawn here, which bounds the slope that is not a jump


@st.composite
def warmed_up(draw: st.DrawFn) -> tuple[schedules.Schedule, dict]:
    """A schedule with a warm-up and a decay, and its settings; the warm-up ends before 0.5."""
    start, floor, peak = (*draw(st.tuples(value, value)), draw(value))
    assume(max(start, floor) <= peak)
    common = {"peak": peak, "floor": floor, "start": start, "warmup": draw(st.floats(SHORTEST, 0.49))}
    end, decay = draw(st.floats(0.55, 1)), draw(st.floats(SHORTEST, 0.5))
    schedule = draw(
        st.sampled_from(
            [
                schedules.cosine(**common, end=end),
                schedules.cosine(**common, end=end, stretch=draw(st.floats(1, 5))),
                schedules.warmup_linear(**common, end=end),
                schedules.trapezoidal(**common, decay=decay, shape="linear"),
                schedules.trapezoidal(**common, decay=decay, shape="cosine"),
                schedules.trapezoidal(**common, decay=decay, shape="one-minus-sqrt"),
            ]
        )
    )
    return schedule, common


@st.composite
def cyclical(draw: st.DrawFn) -> tuple[schedules.Schedule, float, float]:
    """A schedule of cycles, and its two bounds."""
    low, high = sorted(draw(st.tuples(value, value)))
    cycle, rise = draw(st.floats(0.2, 1)), draw(st.floats(0.25, 0.75))
    common = {"low": low, "high": high, "cycle": cycle, "rise": rise}
    schedule = draw(
        st.sampled_from(
            [
                schedules.triangular(**common),
                schedules.triangular(**common, decay="halving"),
                schedules.triangular(**common, decay="exponential", gamma=draw(st.floats(0.1, 1))),
                schedules.cosine_restarts(
                    peak=high, floor=low, cycle=cycle, multiplier=draw(st.floats(1, 3))
                ),
            ]
        )
    )
    return schedule, low, high


@QUICK
@given(warmed_up(), progress)
def test_warmed_up_values_never_leave_their_bounds(case: tuple[schedules.Schedule, dict], p: float) -> None:
    schedule, given_settings = case
    lowest = min(given_settings["start"], given_settings["floor"])
    assert lowest <= schedule(p) <= given_settings["peak"]


@QUICK
@given(warmed_up(), shares)
def test_warm_up_rises_and_decay_falls(case: tuple[schedules.Schedule, dict], two: list[float]) -> None:
    schedule, given_settings = case
    earlier, later = two
    warmup, slack = given_settings["warmup"], 1e-12 * max(1, abs(given_settings["peak"]))
    if later <= warmup:
        assert schedule(earlier) <= schedule(later) + slack
    if earlier >= warmup:
        assert schedule(earlier) >= schedule(later) - slack


@QUICK
@given(warmed_up())
def test_warm_up_begins_at_start_and_ends_at_peak(case: tuple[schedules.Schedule, dict]) -> None:
    schedule, given_settings = case
    assert schedule(0.0) == given_settings["start"]
    assert schedule(given_settings["warmup"]) == given_settings["peak"]


@QUICK
@given(warmed_up())
def test_warmed_up_schedules_do_not_jump(case: tuple[schedules.Schedule, dict]) -> None:
    schedule, given_settings = case
    span = given_settings["peak"] - min(given_settings["start"], given_settings["floor"])
    assert_no_jump(schedule, span, exponent=0.5 if "one-minus-sqrt" in repr(schedule) else 1.0)


def assert_no_jump(schedule: schedules.Schedule, span: float, exponent: float = 1.0) -> None:
    """From each thousandth of training to the next, no more change than the steepest shape makes."""
    steepest = span * math.pi / 2 * (0.001 / SHORTEST) ** exponent
    values = [*schedule.values(1000), schedule(1.0)]
    assert max(abs(after - before) for before, after in pairwise(values)) <= steepest * (1 + 1e-9) + 1e-9


@QUICK
@given(cyclical(), progress)
def test_cycles_never_leave_their_bounds(case: tuple[schedules.Schedule, float, float], p: float) -> None:
    schedule, low, high = case
    assert low <= schedule(p) <= high


@QUICK
@given(cyclical())
def test_triangles_do_not_jump(case: tuple[schedules.Schedule, float, float]) -> None:
    schedule, low, high = case
    assume("triangular" in repr(schedule))
    assert_no_jump(schedule, span=2 * (high - low))  # twice: an exponential decay adds to the slope


@QUICK
@given(
    st.floats(0.01, 10),
    st.floats(1, 100),
    st.floats(1, 1e5),
    st.floats(0.05, 0.45),
    st.sampled_from(["cosine", "linear"]),
    st.sampled_from([2, 3]),
)
def test_one_cycle_is_bounded_and_does_not_jump(peak, first, last, rise, anneal, phases) -> None:
    schedule = schedules.one_cycle(
        peak=peak, initial_divisor=first, final_divisor=last, rise=rise, anneal=anneal, num_phases=phases
    )
    assert_no_jump(schedule, peak)
    assert all(peak / first / last <= value <= peak for value in schedule.values(1000))
    assert schedule(rise) == peak
    assert schedule(1.0) == peak / first / last


@QUICK
@given(st.lists(st.tuples(st.integers(0, 20), value), min_size=2, unique_by=lambda pair: pair[0]).map(sorted))
def test_piecewise_is_bounded_continuous_and_hits_its_points(points: list[tuple[int, float]]) -> None:
    schedule = schedules.piecewise(points=[(place / 20, height) for place, height in points])
    heights = [height for _, height in points]
    assert all(min(heights) <= value <= max(heights) for value in schedule.values(1000))
    assert [schedule(place / 20) for place, _ in points] == heights
    assert_no_jump(schedule, max(heights) - min(heights))


@QUICK
@given(value, value, shares, progress)
def test_inverse_root_falls_from_its_peak(one: float, other: float, two: list[float], warmup: float) -> None:
    start, peak = sorted((abs(one), abs(other)))
    assume(warmup > SHORTEST)
    schedule = schedules.inverse_root(peak=peak, start=start, warmup=warmup)
    assert schedule(warmup) == peak
    earlier, later = (warmup + (1 - warmup) * share for share in two)
    assert schedule(min(earlier, 1)) >= schedule(min(later, 1)) * (1 - 1e-12)
    # After the warm-up, value times root of progress stays the same.
    assert schedule(1.0) == pytest.approx(peak * math.sqrt(warmup), rel=1e-12)


steps_and_total = st.integers(2, 5000).flatmap(
    lambda total: st.tuples(st.integers(1, total - 1), st.just(total), st.integers(0, total - 1))
)


def spellings(length: int, total: int) -> list:
    """A number of steps as such, as a share, and as a resolved recipe prints a share."""
    return [f"{length} steps", length / total, str(Duration(length / total, "share"))]


@QUICK
@given(steps_and_total)
def test_jumps_come_at_their_very_step(case: tuple[int, int, int]) -> None:
    length, total, k = case
    horizon = Horizon(total, 1)
    for written in spellings(length, total):
        p = k / total
        assert schedules.step(horizon, milestones=[written], factor=0.5)(p) == (0.5 if k >= length else 1.0)
        assert schedules.step(horizon, every=written, factor=0.5)(p) == 0.5 ** (k // length)
        assert schedules.window(horizon, begin=written)(p) == float(k >= length)
        assert schedules.window(horizon, end=written)(p) == float(k < length)
        stair = schedules.nesterov_momentum(horizon, interval=written, ceiling=0.9999)
        assert stair(p) == min(1 - 0.5 / (k // length + 1), 0.9999)


@QUICK
@given(steps_and_total)
def test_restarts_come_at_their_very_step(case: tuple[int, int, int]) -> None:
    length, total, _ = case
    assume(total / length < 5000)
    for written in spellings(length, total):
        values = schedules.cosine_restarts(Horizon(total, 1), cycle=written).values(total)
        risen = [k + 1 for k, (before, after) in enumerate(pairwise(values)) if after > before]
        assert risen == (list(range(length, total, length)) if length > 1 else [])
        assert all(values[k] == 1.0 for k in range(0, total, length))
        triangle = schedules.triangular(Horizon(total, 1), cycle=written, decay="halving").values(total)
        assert all(triangle[k] == pytest.approx(0, abs=1e-6) for k in range(0, total, length))


@QUICK
@given(st.integers(1, 400), st.floats(0, 1), st.floats(0.01, 5))
def test_noam_peaks_where_the_warm_up_ends(total: int, share: float, factor: float) -> None:
    warmup = max(1, round(share * total))
    values = schedules.noam(Horizon(total, 1), warmup=f"{warmup} steps", model_dim=64, factor=factor).values(
        total
    )
    assert max(values) == pytest.approx(factor / math.sqrt(64 * warmup), rel=1e-12)
    assert values.index(max(values)) == warmup - 1


def test_long_trainings_keep_their_jumps() -> None:
    """A hundred million steps, cycles of three: far from the first ones, no step is late."""
    total = 99_999_999
    schedule = schedules.step(Horizon(total, 1), every="3 steps", factor=1 - 1e-9)
    for k in (3, 3_000_000, 33_333_333, 66_666_666, 99_999_996):
        counts = [
            round(math.log(schedule(step / total)) / math.log(1 - 1e-9)) for step in (k - 1, k, k + 1, k + 2)
        ]
        assert counts == [k // 3 - 1, k // 3, k // 3, k // 3]
