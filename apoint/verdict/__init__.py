"""Paired statistics and the verdict on two arms: better, worse, equivalent or undecided.

Pure functions of numbers, with no training inside. `decide` does the whole job; the intervals that stay valid
under repeated looks, and the statistics reported with them, are also available separately.
"""

from apoint.verdict.arms import decide_arms
from apoint.verdict.calibration import DEFAULT_LOOKS, check_plan, default_looks
from apoint.verdict.companions import (
    interquartile_mean,
    mcnemar_p,
    pair_correlation,
    probability_of_improvement,
    standardised_effect,
)
from apoint.verdict.decision import decide
from apoint.verdict.examples import ExampleNoise, example_noise
from apoint.verdict.intervals import anytime_multiplier, planned_multiplier
from apoint.verdict.moments import skewness
from apoint.verdict.record import Failures, Look, Verdict
from apoint.verdict.sign_flips import sign_flip_p, smallest_p

__all__ = [
    "DEFAULT_LOOKS",
    "ExampleNoise",
    "Failures",
    "Look",
    "Verdict",
    "anytime_multiplier",
    "check_plan",
    "decide",
    "decide_arms",
    "default_looks",
    "example_noise",
    "interquartile_mean",
    "mcnemar_p",
    "pair_correlation",
    "planned_multiplier",
    "probability_of_improvement",
    "sign_flip_p",
    "skewness",
    "smallest_p",
    "standardised_effect",
]
