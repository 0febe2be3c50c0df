"""The algorithm-blind learner: rows of tokens and advantages in, new weights out.

Belongs here: losses, packing, ranks.
Not here: where advantages come from (joint).
"""
