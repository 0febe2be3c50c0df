"""Sealed plays and their scores, baselines included.

Belongs here: playing test scenarios, stored plays, score records.
Not here: summaries, gates and tables of a run (summary), pages (report).
"""
