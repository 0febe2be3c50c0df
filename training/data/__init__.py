"""Demonstrations: data folders and token rows.

Belongs here: making, checking and describing data.
Not here: training on it (stages).
"""
