"""Procedural structures of a company case, with exact analyses."""
