"""Command line: one file per group of verbs; each verb calls one function of `emads.commands`.

Belongs here: arguments, options, help texts, exit statuses.
Not here: anything that a verb does (emads/commands) or that Python callers use (emads/api.py).
"""

from emads.cli.app import app, main

__all__ = ["app", "main"]
