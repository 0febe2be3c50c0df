"""Training stages: one loop per stage, in this process or on several ranks.

Belongs here: reading a stage's input, looping, publishing its output.
Not here: the computation of a step.
"""
