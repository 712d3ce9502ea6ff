"""Trials: arms, declarations, comparisons look by look, and the search for a better recipe."""

from apoint.trials.arms import Arm, differences, make_arm
from apoint.trials.compare import compare
from apoint.trials.comparison import Comparison, Rules, predict, prepare
from apoint.trials.declaration import Declaration, read_declaration
from apoint.trials.improve import improve
from apoint.trials.improver import Improvement
from apoint.trials.record import read_result
from apoint.trials.tune import tuned_comparison

__all__ = [
    "Arm",
    "Comparison",
    "Declaration",
    "Improvement",
    "Rules",
    "compare",
    "differences",
    "improve",
    "make_arm",
    "predict",
    "prepare",
    "read_declaration",
    "read_result",
    "tuned_comparison",
]
