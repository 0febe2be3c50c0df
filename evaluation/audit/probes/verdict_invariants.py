"""Checks what holds of every verdict, whatever the answer: range, parts, explanation."""

import math

from scenarios.base import Verdict


def is_sound(verdict: Verdict) -> bool:
    """Reward and parts finite in [0, 1]; 1 for the exact optimum only, 0 where a hard constraint breaks."""
    numbers = [verdict.reward, *verdict.parts.values()]
    in_range = all(math.isfinite(number) and 0 <= number <= 1 for number in numbers)
    return in_range and (verdict.reward < 1 or verdict.exact) and (verdict.reward == 0 or verdict.feasible)


def describe_verdict(verdict: Verdict, text: str) -> str:
    """Return the verdict and the text that got it, on one line."""
    return (
        f"reward {verdict.reward}, exact {verdict.exact}, feasible {verdict.feasible}, "
        f"parts {dict(verdict.parts)} for {text[:100]!r}"
    )
