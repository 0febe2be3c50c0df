"""Joint RL of the whole team: play, credit, advantages, rows, update.

Belongs here: everything in one joint step up to its training rows.
Not here: the loss (learner), checkpoints (runs).
"""
