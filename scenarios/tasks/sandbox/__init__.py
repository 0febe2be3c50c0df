"""Sandbox that runs model programs in bubblewrap.

Belongs here: the sandbox, its limits, scoring of program results.
Not here: the task texts.
"""
