"""Sealed plays and their scores, baselines included.

Not here: intervals (evaluation.stats), tables and gates (evaluation.summary).
"""
