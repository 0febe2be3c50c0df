"""Cases that people write, as YAML or Markdown.

Belongs here: reading and checking case files.
Not here: generated cases.
"""
