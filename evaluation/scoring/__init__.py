"""Sealed plays and what they scored.

Belongs here: playing test scenarios, baselines, score records, the summary and its gates.
Not here: pages (report).
"""
