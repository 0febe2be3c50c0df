"""Memory, time and price of a config before it runs.

Belongs here: arithmetic on shapes and workloads.
Not here: measurements of finished runs.
"""
