"""Who may approve what: proposals, signatures, reviewers.

Belongs here: everything that decides whether a plan may be carried out.
Not here: the database (store).
"""
