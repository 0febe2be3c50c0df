"""Task families beside the team: imported questions, maths, look-ups, programs.

Belongs here: task families and their splits.
Not here: role families (scenarios).
"""
