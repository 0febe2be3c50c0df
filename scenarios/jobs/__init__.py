"""Whole jobs: one family per role that asks the role's whole question, exactly and with graded parts.

A job's file holds its role, generator, both exact methods, verifier, tool, demonstrations and baselines; `job.py`
holds what all five share. They are registered in `scenarios.tasks.registry`.
"""
