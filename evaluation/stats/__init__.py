"""Confidence intervals, significance tests and effect sizes: pure functions of numbers.

Not here: what is compared and shown (evaluation.summary).
"""
