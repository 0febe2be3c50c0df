"""Agents: one role's turns and tool calls, which make a trajectory.

Belongs here: agents, their tools and limits, scripted policies.
Not here: the order of roles (graph).
"""
