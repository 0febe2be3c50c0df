"""Joint training that loses rollout workers or ranks in the middle of a step.

Models are tiny and play scripted words, as untrained ones earn no reward.
"""
