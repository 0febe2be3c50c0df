"""Breaks training, data making and governed episodes on purpose and counts what survives.

Run it with `PYTHONPATH=tests python -m reliability`. Checks that no machine changes, such
as ways past the human gate, are tests: `pytest --counts full`.
"""
