"""Episodes in formats of others: JSON lines, ATIF, OpenTelemetry, PettingZoo.

Belongs here: writers and adapters.
Not here: the records themselves (simulator.records).
"""
