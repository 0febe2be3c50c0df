"""Diagnostics of a team: interventions that isolate a role's contribution.

Not here: attacks on verifiers and rewards (evaluation.audit).
"""
