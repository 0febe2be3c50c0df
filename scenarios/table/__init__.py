"""The planning table: seats offer plan parts, ReconcileGPT funds some of them on one option, seats vote.

Belongs here: who sees what, what a report may claim, what a decision is worth, how experts play.
Not here: the company and its structures (scenarios.company).
"""
