"""Configuration of a run: strict models, read from and written to YAML.

Belongs here: keys, defaults, checks between keys.
Not here: code that a key controls.
"""
