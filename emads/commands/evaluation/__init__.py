"""Application behind `emads evaluate` and `emads diagnose`.

Belongs here: plays of runs and of named players, their store, question files, probes.
Not here: players, scores and statistics (evaluation).
"""
