"""SQLite store of governed episodes.

Belongs here: transactions, checkpoints, the decision log, the effects ledger.
Not here: rules of approval (gate).
"""
