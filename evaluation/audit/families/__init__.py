"""One file per family: its figures and optimum by a route of its own.

Belongs here: independent re-solving of a family.
Not here: imports of that family's own solver.
"""
