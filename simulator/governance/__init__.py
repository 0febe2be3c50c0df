"""Governed episodes: approval, execution, monitoring and re-plans.

Belongs here: the governed graph, its state and runner.
Not here: approvals (gate) and the database (store).
"""
