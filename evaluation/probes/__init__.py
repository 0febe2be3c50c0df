"""Diagnosis of a team: who is heard, who rides free, what a swap costs.

Belongs here: ways of playing that isolate a role's share.
Not here: attacks on verifiers (audit).
"""
