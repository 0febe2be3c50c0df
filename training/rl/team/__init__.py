"""The team: joint episodes, the team reward, its credit's rows, metrics and guards.

Belongs here: what only joint training plays and measures.
Not here: the loop, credit schemes and estimators.
"""
