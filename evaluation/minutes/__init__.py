"""Minutes: one episode as an HTML page or text.

Belongs here: minutes, transcripts, the live view.
Not here: pages about a whole run (report).
"""
