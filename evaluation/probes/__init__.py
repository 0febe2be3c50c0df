"""Diagnostics of a team: ignored reports, free riders, role swaps.

Belongs here: interventions that isolate a role's contribution.
Not here: attacks on verifiers (audit).
"""
