"""Closed-form mathematics, without training: expectations under a Gaussian for now."""

from apoint.theory.gaussian import backward_gain, expectation, gain, second_moment

__all__ = ["backward_gain", "expectation", "gain", "second_moment"]
