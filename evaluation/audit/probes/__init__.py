"""Probes of the audit: one way to earn an undeserved reward per file.

Belongs here: attacks that know answer schemas alone.
Not here: the meaning of a family's figures (families).
"""
