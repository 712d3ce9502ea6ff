"""Measured comparisons: ratios within one run against what a user would do otherwise."""
