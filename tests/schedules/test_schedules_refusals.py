"""What cannot be is refused in one sentence, through the registry and by a direct call alike."""

from __future__ import annotations

import pytest

import apoint.schedules
from apoint.errors import UsageError
from apoint.registry import registry
from apoint.units import Duration, Horizon

HORIZON = Horizon(total_steps=100, steps_per_epoch=10)

REFUSALS = [
    ("cosine", {"warmup": "101 steps"}, "warmup of 101 steps is longer than training, which has 100 steps"),
    ("cosine", {"warmup": "11 epochs"}, "warmup of 11 epochs is longer than training"),
    ("cosine", {"warmup": 500}, "warmup: 500 is not a share of training between 0 and 1"),
    ("cosine", {"warmup": "soon"}, "warmup: cannot read 'soon' as a length of training"),
    (
        "cosine",
        {"warmup": Duration(-0.5, "share")},
        "warmup must be between 0% and 100% of training, got -50%",
    ),
    ("cosine", {"warmup": Duration(-5, "steps")}, "warmup must be between 0% and 100% of training"),
    ("cosine", {"warmup": 1.0}, "end must come after the warm-up"),
    ("cosine", {"warmup": 0.5, "end": 0.4}, "end of the decay at 40% and a warmup of 50%"),
    ("cosine", {"floor": 2.0}, "floor must be at most peak, got floor 2.0 and peak 1.0"),
    ("cosine", {"start": 2.0, "warmup": 0.1}, "start must be at most peak, got start 2.0 and peak 1.0"),
    ("cosine", {"stretch": 0.9}, "stretch must be at least 1"),
    ("cosine", {"peak": float("inf")}, "peak must be a finite number, got inf"),
    ("cosine", {"peak": "high"}, "peak must be a number, got 'high'"),
    ("cosine", {"warm_up": 0.1}, "unknown setting 'warm_up'; did you mean 'warmup'"),
    ("warmup-linear", {"floor": 2.0}, "floor must be at most peak"),
    ("warmup-linear", {"warmup": 0.5, "end": 0.5}, "end must come after the warm-up"),
    ("warmup-linear", {"start": 2.0, "warmup": 0.1}, "start must be at most peak"),
    ("trapezoidal", {"warmup": 0.5, "decay": 0.6}, "warmup of 50% and decay of 60% are together longer than"),
    ("trapezoidal", {"floor": 2.0}, "floor must be at most peak"),
    ("trapezoidal", {"shape": "round"}, "shape must be one of 'linear', 'cosine' or 'one-minus-sqrt'"),
    ("inverse-root", {"warmup": 0}, "timescale is needed when there is no warm-up"),
    ("inverse-root", {"timescale": 0}, "timescale must be longer than nothing, got 0%"),
    ("inverse-root", {"start": 2.0}, "start must be at most peak"),
    ("inverse-root", {"power": 0}, "power must be greater than 0"),
    ("noam", {"warmup": "4000 steps"}, "warmup of 4000 steps is longer than training"),
    ("noam", {"model_dim": 0}, "model_dim must be at least 1, got 0"),
    ("noam", {"factor": -1}, "factor must be greater than 0"),
    ("linear", {"length": "0 steps"}, "length must be longer than nothing, got 0 steps"),
    ("exponential", {"every": 0}, "every must be longer than nothing"),
    ("exponential", {"factor": 0}, "factor must be greater than 0"),
    ("exponential", {"factor": 10, "every": 0.001}, "a factor of 10.0 every 0.1% grows beyond the largest"),
    ("piecewise", {}, "points is missing"),
    ("piecewise", {"points": []}, "points must be at least two, got 0"),
    ("piecewise", {"points": [(0, 1)]}, "points must be at least two, got 1; for one value, use constant"),
    (
        "piecewise",
        {"points": [(0, 1), (0.5, 2), (0.2, 3)]},
        "points must be in order, got 20% after 50%",
    ),
    ("piecewise", {"points": [(0, 1), ("101 steps", 2)]}, "points.1 of 101 steps is longer than training"),
    ("step", {"milestones": [0.5, 0.2]}, "milestones must be in order, got 20% after 50%"),
    ("step", {"milestones": [0.5, 0.5]}, "milestones must be in order, got 50% after 50%"),
    (
        "step",
        {"milestones": ["50 steps", "4 epochs"]},
        "milestones must be in order, got 4 epochs after 50 steps",
    ),
    ("step", {"milestones": []}, "milestones must name at least one"),
    ("step", {"milestones": [0]}, "milestones must come after the beginning of training, got 0%"),
    ("step", {"milestones": [0.5], "every": 0.1}, "milestones and every exclude each other"),
    ("step", {"every": 0}, "every must be longer than nothing"),
    ("step", {"factor": 10}, "factor must be at most 1"),
    ("window", {"begin": 0.5, "end": 0.5}, "end must come after begin, got a window from 50% to 50%"),
    ("window", {"begin": "6 epochs", "end": "2 epochs"}, "got a window from 6 epochs to 2 epochs"),
    ("nesterov-momentum", {"ceiling": 1.0}, "ceiling must be less than 1"),
    ("nesterov-momentum", {"interval": 0}, "interval must be longer than nothing"),
    ("triangular", {"low": 2.0}, "low must be at most high, got low 2.0 and high 1.0"),
    ("triangular", {"cycle": 0}, "cycle must be longer than nothing"),
    ("triangular", {"num_cycles": 0}, "num_cycles must be at least 1"),
    ("triangular", {"cycle": 0.5, "num_cycles": 2}, "cycle and num_cycles exclude each other"),
    ("triangular", {"rise": 1.0}, "rise must be less than 1"),
    (
        "triangular",
        {"gamma": 0.5},
        "gamma belongs to the decay 'exponential', got gamma 0.5 and decay 'none'",
    ),
    ("triangular", {"decay": "exponential"}, "gamma belongs to the decay 'exponential', got gamma None"),
    ("triangular", {"decay": "exponential", "gamma": 1.5}, "gamma must be at most 1"),
    ("cosine-restarts", {"cycle": 0}, "cycle must be longer than nothing"),
    ("cosine-restarts", {"cycle": 1e-6}, "cycle makes more than 10000 cycles in training"),
    ("cosine-restarts", {"cycle": []}, "cycle must list at least one cycle"),
    ("cosine-restarts", {"cycle": [0.5, 0]}, "cycle.1 must be longer than nothing"),
    ("cosine-restarts", {"cycle": [0.5, "60 steps"]}, "cycle lists lengths that sum to 110% of training"),
    (
        "cosine-restarts",
        {"cycle": [0.5], "multiplier": 2},
        "multiplier has no meaning for cycles that are listed",
    ),
    ("cosine-restarts", {"multiplier": 0.5}, "multiplier must be at least 1"),
    ("cosine-restarts", {"peak": [1, 2]}, "peak must list one value for each cycle, got 2 for 4 cycles"),
    ("cosine-restarts", {"floor": [0] * 5}, "floor must list one value for each cycle, got 5 for 4 cycles"),
    ("cosine-restarts", {"peak": [1] * 4, "peak_decay": 0.5}, "peak_decay has no meaning for peaks that are"),
    ("cosine-restarts", {"peak_decay": 0.5, "floor": 0.2}, "got floor 0.2 and peak 0.125 in cycle 4"),
    (
        "cosine-restarts",
        {"peak": "high"},
        "peak: expected a finite number, or a list with one for each cycle",
    ),
    ("cosine-restarts", {"peak": [1, None]}, "peak: expected a finite number, or a list with one for each"),
    (
        "cosine-restarts",
        {"floor": float("nan")},
        "floor: expected a finite number, or a list with one for each",
    ),
    (
        "one-cycle",
        {"rise": 1.0},
        "rise must leave room for the last descent, got 100% in a cycle of 2 phases",
    ),
    ("one-cycle", {"rise": 0.5, "num_phases": 3}, "at most 50% of training is there"),
    ("one-cycle", {"num_phases": 4}, "num_phases must be one of 2 or 3, got 4"),
    ("one-cycle", {"initial_divisor": 0}, "initial_divisor must be greater than 0"),
]


@pytest.mark.parametrize(("name", "settings", "sentence"), REFUSALS)
def test_refused_in_one_sentence(name: str, settings: dict, sentence: str) -> None:
    function = getattr(apoint.schedules, name.replace("-", "_"))
    with pytest.raises(UsageError) as by_recipe:
        registry("schedule").build({"name": name, **settings}, HORIZON)
    with pytest.raises(UsageError) as directly:
        function(HORIZON, **settings)
    assert str(directly.value) == str(by_recipe.value)
    assert str(directly.value).startswith(f"schedule {name!r}: ")
    assert str(directly.value).count("schedule '") == 1
    assert sentence in str(directly.value)


def test_every_schedule_but_the_constant_refuses_something() -> None:
    assert {name for name, _, _ in REFUSALS} | {"constant"} == set(registry("schedule"))


@pytest.mark.parametrize(
    "call",
    [
        lambda: apoint.schedules.cosine(warmup="5 steps"),
        lambda: apoint.schedules.step(milestones=["1 epoch"]),
        lambda: apoint.schedules.piecewise(points=[(0, 1), ("5 steps", 0)]),
        lambda: apoint.schedules.noam(),
    ],
)
def test_steps_need_a_horizon(call) -> None:
    with pytest.raises(
        UsageError, match=r"schedule '.*pass horizon=Horizon\(total_steps=…, steps_per_epoch=…\)"
    ):
        call()


def test_a_setting_in_the_place_of_the_horizon_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"horizon must be Horizon\(.*write settings by name, such as peak=0.5"
    ):
        apoint.schedules.cosine(0.5)
    with pytest.raises(UsageError, match=r"schedule 'piecewise': horizon must be .* such as points=\["):
        apoint.schedules.piecewise([(0, 1), (1, 0)])


def test_fitting_exactly_is_not_refused() -> None:
    apoint.schedules.cosine(HORIZON, warmup="99 steps")
    apoint.schedules.trapezoidal(warmup=0.3, decay=0.7)
    apoint.schedules.trapezoidal(warmup="33.3333333334%", decay="66.6666666667%")  # thirds, as printed
    apoint.schedules.cosine_restarts(cycle=[0.1] * 10)
    apoint.schedules.cosine_restarts(HORIZON, cycle=["3 epochs", "70 steps"])
    apoint.schedules.cosine(peak=-1.0, floor=-2.0)  # without a warm-up, start has no say
