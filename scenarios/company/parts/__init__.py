"""Families of a seat's sub-question: the best part of a plan on one option within an amount of money.

Belongs here: question, texts, tools, verdict, demonstrations, baselines; one generic family over a domain.
Not here: what a structure is and how it is measured (scenarios.company.domains).
"""
