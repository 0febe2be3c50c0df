"""Attacks on verifiers and on the team reward: subjects, probes, cheats, and the run of them.

Not here: the verifiers and rewards that are attacked (scenarios, simulator.reward).
"""
