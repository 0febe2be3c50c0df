"""Joint RL of the whole team: play, credit, advantages, rows, update.

Belongs here: what a joint step does.
Not here: the loss (learner), checkpoints (runs).
"""
