"""Comparison of several runs: ablation cells and seeds.

Belongs here: tables and intervals over several runs.
Not here: the scores of one run (scoring).
"""
