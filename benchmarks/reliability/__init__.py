"""Batteries that break runs on purpose and say what survived: `python -m benchmarks.reliability`."""
