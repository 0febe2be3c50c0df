"""Programs that nobody trusts, run in bubblewrap and nowhere else.

Belongs here: the sandbox, its limits and the judging of programs.
Not here: which programs are asked for.
"""
