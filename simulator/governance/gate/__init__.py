"""Human gate: proposals, signed approvals, reviewers.

Belongs here: every rule that decides whether a plan may be carried out.
Not here: the database (store).
"""
