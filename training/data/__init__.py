"""Data folders of verified demonstrations, and demonstrations as token rows.

Belongs here: making, checking and describing data.
Not here: training on it (stages).
"""
