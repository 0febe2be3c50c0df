"""Application behind the command line and the Python API: orders stages, plays, writes what a command leaves.

Not here: options and their checks (emads/cli), the team and its players (emads/team.py, emads/seats).
"""
