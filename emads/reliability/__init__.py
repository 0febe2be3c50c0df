"""Breaks training, data making and governed episodes on purpose and counts what survives.

Run it on your own machines with `python -m emads.reliability`. Checks that no machine changes, such as
ways past the human gate, are tests: `pytest --counts full`.
"""
