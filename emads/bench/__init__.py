"""A fixed set of cases on which any team of models is measured, alone and at the table, and its result card.

Belongs here: the set and its pinned digests, plays of it, cards and their comparison.
Not here: who plays (emads.seats), generators and verifiers (scenarios).
"""
