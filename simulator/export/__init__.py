"""Episodes in other formats (JSON lines, ATIF, OpenTelemetry, PettingZoo) and the one atomic file writer.

Belongs here: writers and adapters; `atomic_files` is how every package replaces a file.
Not here: the records themselves (simulator.records).
"""
