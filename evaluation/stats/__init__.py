"""Confidence intervals, significance tests and effect sizes.

Belongs here: pure functions of numbers.
Not here: anything that knows a role or a run.
"""
