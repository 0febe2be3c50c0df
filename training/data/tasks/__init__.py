"""Data folders of imported questions.

Belongs here: import, splits and checks.
Not here: grading of answers (scenarios.tasks).
"""
