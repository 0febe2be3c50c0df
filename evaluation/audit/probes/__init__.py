"""One probe per file: a way to earn more than an answer is worth.

Belongs here: attacks that know answer schemas alone.
Not here: what a family's figures mean.
"""
