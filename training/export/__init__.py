"""A trained team as one folder that leaves its run: written, checked, and loaded by other programs.

Belongs here: the folder's record, merged weights, GGUF files, the model card, the upload to a hub.
Not here: who plays with such a team (emads).
"""
