"""Runs beside each other: ablation cells and trained seeds.

Belongs here: tables and intervals over several runs.
Not here: the scores of one run (scoring).
"""
