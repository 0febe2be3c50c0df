"""The words of every case: sectors, surface forms, one brief writer per family.

Belongs here: wording.
Not here: figures and truth.
"""
