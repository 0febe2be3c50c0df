"""Diagnostics of a team: interventions that isolate a role's contribution."""
