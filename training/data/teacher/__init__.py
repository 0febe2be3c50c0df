"""Demonstrations written by a teacher model.

Belongs here: prompting the teacher, checking and storing its plays.
Not here: the HTTP client (simulator.engines.openai).
"""
