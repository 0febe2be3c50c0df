"""Role families as HTTP environments for other trainers.

Belongs here: the HTTP contract and its data rows.
Not here: rules of a family (scenarios).
"""
