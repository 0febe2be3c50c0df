"""One episode as a page that people read.

Belongs here: minutes, transcripts, the live view.
Not here: pages about a whole run (report).
"""
