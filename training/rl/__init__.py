"""Reinforcement learning, one loop for a role alone and for the team: play, score, credit, rows, update.

Belongs here: everything in one step up to its training rows, for a role alone (`solo`) and the `team`.
Not here: the loss (learner), checkpoints (runs), supervised training (roles).
"""
