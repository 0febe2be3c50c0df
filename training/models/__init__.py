"""Base models, adapters, optimizers, and the files that hold their weights.

Belongs here: building and loading models.
Not here: training them.
"""
