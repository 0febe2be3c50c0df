"""Choice of the cases that people review, and of the point at which a review is worth its cost.

Belongs here: choosing from what is known before the review.
Not here: the queue and its labels (training/feedback).
"""
