"""Attacks on verifiers and on the team reward: subjects, probes, cheats, and the run of them."""
