"""Briefs: the text of every case, by sector and form.

Belongs here: wording.
Not here: figures and truth.
"""
