"""Tasks beside the team's decisions: imported questions, maths, look-ups, programs.

Belongs here: task families and their splits.
Not here: role families.
"""
