"""Web services: the review app, where people rule on cases, and endpoints where a trained team answers.

Belongs here: everything that listens on a port. Not here: who plays, and what a ruling is worth.
"""
