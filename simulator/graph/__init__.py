"""LangGraph graph of the `assess` protocol, and the runner that plays many episodes at once.

Belongs here: nodes of the graph, seating, concurrency.
Not here: the human gate (governance).
"""
