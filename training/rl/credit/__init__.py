"""Credit: scored groups to advantages.

Belongs here: credit schemes, worth of offers, credit of votes, estimators, critic.
Not here: rewards (training/rl/team/score.py), rows and losses.
"""
