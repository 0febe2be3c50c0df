"""Governed episodes: human gate, execution, monitoring and re-plans.

Belongs here: the governed graph, its nodes and state.
Not here: what is signed (gate) and stored (store).
"""
