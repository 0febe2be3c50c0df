"""Estimates of memory, time and price of a config.

Belongs here: arithmetic on shapes and workloads.
Not here: measurements of finished runs.
"""
