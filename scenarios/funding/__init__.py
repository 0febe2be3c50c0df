"""Parts of the reconcile family: its question as facts, second method, demonstrations, simple policies.

Belongs here: what only this family needs. Not here: the arithmetic over reports, which the team shares.
"""
