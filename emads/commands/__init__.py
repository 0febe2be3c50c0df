"""Application behind the command line: one module per command.

Belongs here: opening runs, ordering stages, writing what a command leaves.
Not here: anything a library user calls to train, play or score.
"""
