"""The configuration of a run: strict models, YAML in and out.

Belongs here: keys, defaults, checks between keys.
Not here: what a key does.
"""
