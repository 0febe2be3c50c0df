"""Attacks on verifiers and on the team reward.

Belongs here: running the probes at a tier, the journal of their results.
Not here: the rules of a verdict (scenarios).
"""
