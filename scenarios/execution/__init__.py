"""Carried-out plans: shocks on structures, hidden traits of a company, what is observed and what is left.

Belongs here: pure functions from a company case and carried-out plans to the company's next case.
Not here: the human gate and the graph (simulator.governance).
"""
