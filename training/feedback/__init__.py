"""Learning from what reviewers say: labels as data, and the ways to train on them.

Belongs here: label records and files, simulated reviewers, DPO, reward models, PPO.
Not here: the pages on which people review (serving/review).
"""
