"""Demonstrations written by a teacher model.

Belongs here: asking it, checking and keeping its plays.
Not here: the HTTP client (simulator.engines.openai).
"""
