"""Cases that people write, as YAML or Markdown.

Belongs here: reading and checking foreign files.
Not here: generated cases.
"""
