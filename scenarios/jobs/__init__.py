"""Whole jobs: one family per role that asks the role's whole question, exactly, with graded parts.

A job's file holds role, generator, both exact methods, verifier, tool, demonstrations and baselines;
`job.py` holds what all five share. They are registered in `scenarios.tasks.registry`.
"""
