"""Routes of the review app, by what they are about.

Belongs here: what a form means, and which page answers it. Not here: what all pages share (pages).
"""
