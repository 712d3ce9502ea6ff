"""Each chart alone, as SVG with text as text; colours are variables with a light colour as fallback.

slope            every pair, baseline to candidate
forest           every pair's difference, with the mean and its interval
looks            the interval at each look, zero, margin and boundary
training_curves  a metric of both arms along training
difference_curve the paired difference along training
"""

from apoint.report.figures.curves import difference_curve, training_curves
from apoint.report.figures.forest import forest
from apoint.report.figures.looks import looks
from apoint.report.figures.slope import slope

__all__ = ["difference_curve", "forest", "looks", "slope", "training_curves"]
