"""One episode in words: minutes, transcripts, the live view.

Not here: pages about whole runs (evaluation.report).
"""
