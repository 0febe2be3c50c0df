"""Data folders of imported questions.

Belongs here: import, splits and checks.
Not here: how an answer is graded (scenarios.tasks).
"""
