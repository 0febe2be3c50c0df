"""One episode in words: minutes, transcripts, the live view."""
