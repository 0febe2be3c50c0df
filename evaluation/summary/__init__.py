"""The numbers of one run: its summary, details, gates and tables.

Belongs here: what is computed from stored scores and plays, and its tables on a terminal or in documents.
Not here: playing (scoring), pages (report).
"""
