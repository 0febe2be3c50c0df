"""Confidence intervals, significance tests and effect sizes: pure functions of numbers."""
