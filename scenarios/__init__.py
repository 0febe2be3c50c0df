"""Scenarios: generator, exact oracle and verifier of every family. Imports no torch and no langgraph.

Nothing here plays a scenario or trains on one, and model text is never evaluated.
"""
