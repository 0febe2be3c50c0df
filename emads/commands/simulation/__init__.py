"""Application behind `emads simulate`: both protocols, what they leave, episodes side by side.

Belongs here: choosing cases and teams, and the files of a simulation.
Not here: the graph and its nodes (simulator).
"""
