"""`emads bench`: a pinned set of cases, played by any mix of players, and the card of the result.

Not here: the players (emads/seats), the statistics of the card (evaluation/stats).
"""
