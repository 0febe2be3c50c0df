"""Attacks on verifiers and on the team reward, before anything is trained on them.

Belongs here: the tiers, the probes' order, their journal.
Not here: what a verifier pays (scenarios).
"""
