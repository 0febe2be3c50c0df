"""Base models, adapters, optimizers, and files of weights.

Belongs here: building and loading models.
Not here: training them.
"""
