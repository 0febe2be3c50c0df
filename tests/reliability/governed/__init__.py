"""Governed episodes that are killed and resumed, and episodes by the thousand in one process.

Nothing here tries to get past the human gate: tests do.
"""
