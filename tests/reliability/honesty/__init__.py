"""V10: cheats at the table, measured by the team reward and by every credit scheme.

Not here: the cheats themselves (evaluation/audit/team_cheats.py) and the schemes (training/rl/credit).
"""
