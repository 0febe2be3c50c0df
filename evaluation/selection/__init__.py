"""Which cases people are asked about: ways of choosing, and when a review is worth its cost.

Belongs here: choosing from what is known before the review.
Not here: the queue and its labels (training/feedback).
"""
