"""One role at work: turns, tools, limits; a trajectory comes out.

Belongs here: agents, what they call, ready policies.
Not here: who speaks when (graph).
"""
