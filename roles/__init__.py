"""Roles: mandate, strict answer schema and tool signatures of each. Imports no torch and no langgraph.

Every other package may import this one; it imports none of them.
"""
