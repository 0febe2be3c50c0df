"""Learner: token rows with advantages in, new weights out, the same for every algorithm.

Belongs here: losses, rows, ranks.
Not here: the computation of advantages (joint).
"""
