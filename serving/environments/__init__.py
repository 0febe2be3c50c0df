"""Roles, seats and tasks as environments for other trainers.

Belongs here: one core (plays) and an adapter per standard.
Not here: rules of a family (scenarios).
"""
