"""The SQLite file that governance rests on, and records read from it.

Belongs here: transactions, checkpoints, the decision log, the effects ledger.
Not here: rules of approval (gate).
"""
