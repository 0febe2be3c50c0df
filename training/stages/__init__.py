"""One loop per stage of a run, in this process or under a launcher.

Belongs here: reading a stage's input, looping, publishing its output.
Not here: how a step is computed.
"""
