"""Simulation of one episode: agents, engines, LangGraph graphs, episode records, team reward.

Nothing here compares episodes or trains.
"""
