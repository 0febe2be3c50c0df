"""Independent scorers of the audit, one file per family.

Belongs here: figures and optimum of a family computed a second way.
Not here: imports of that family's own solver.
"""
