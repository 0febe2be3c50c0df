"""Scores an answer without the verifier: its choice among all allowed ones, and its stated figures."""

from collections.abc import Sequence

CHOICE_SHARE = 8  # of 10; the rest is for stated figures


def weigh_between(value: float, best: float, worthless: float) -> float:
    """1 at `best` exactly, falling to 0 at the larger `worthless` and beyond."""
    return 1.0 if value == best else max(0.0, (worthless - value) / (worthless - best))


def weigh_smaller(value: float, allowed: Sequence[float]) -> float:
    """1 for the least of the allowed values, 0 from their mean on."""
    return weigh_between(value, min(allowed), sum(allowed) / len(allowed))


def combine_score(choice: float, stated: Sequence[bool]) -> float:
    """0.8 choice + 0.2 share of right figures; exactly 1 where both are.

    Example: combine_score(1.0, [True, False]) == 0.9
    """
    return (CHOICE_SHARE * choice + (10 - CHOICE_SHARE) * sum(stated) / len(stated)) / 10
