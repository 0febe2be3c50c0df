"""Evaluation of trained teams: sealed plays, baselines, statistics, diagnostics, reports, verifier audit.

Nothing here trains.
"""
