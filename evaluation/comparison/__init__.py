"""Comparison of several runs: ablation cells and seeds.

Not here: the summary of a single run (evaluation.summary).
"""
