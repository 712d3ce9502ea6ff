"""Findings from probe readings, with thresholds calibrated on healthy runs. Empty for now."""
