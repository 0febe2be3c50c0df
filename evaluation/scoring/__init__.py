"""Sealed plays and their scores, baselines included."""
