"""The team's LangGraph graph and the runner that plays many episodes on it.

Belongs here: nodes of the assess protocol, seating, concurrency.
Not here: the human gate (governance).
"""
