"""Seats of one team played by different players: API models, weights of runs, scripts.

Belongs here: reading `--seat`, prices and limits, and the team that they make.
Not here: the protocol of endpoints (simulator.engines.openai), a run's weights (emads.trained_team).
"""

STOPPED = 8  # exit status: an endpoint failed, or the cost limit is reached; the same command goes on
