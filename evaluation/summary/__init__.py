"""The numbers of one run: its plays, summary, gates and tables."""
