"""The application behind the verbs: each module is what one command does.

Belongs here: opening runs, ordering stages, writing what a command leaves.
Not here: anything a library user calls to train, play or score.
"""
